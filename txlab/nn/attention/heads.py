"""The three classic choices of how many key/value heads there are."""

from dataclasses import dataclass

from txlab.core.config import Dims
from txlab.nn.attention.mixer import attention
from txlab.nn.attention.softmax import SoftmaxAttention


@attention("mha")
class MHA(SoftmaxAttention):
    """Multi-head attention (Vaswani et al. 2017): each query head has its own key/value head."""

    @dataclass
    class Config(SoftmaxAttention.Config):
        """No further fields."""

    @staticmethod
    def kv_heads(config: SoftmaxAttention.Config, dims: Dims) -> int:
        return dims.n_heads


@attention("mqa")
class MQA(SoftmaxAttention):
    """Multi-query attention (Shazeer 2019): all query heads share one key/value head."""

    @dataclass
    class Config(SoftmaxAttention.Config):
        """No further fields."""

    @staticmethod
    def kv_heads(config: SoftmaxAttention.Config, dims: Dims) -> int:
        return 1


@attention("gqa")
class GQA(SoftmaxAttention):
    """Grouped-query attention (Ainslie et al. 2023): a group of query heads shares a key head."""

    @dataclass
    class Config(SoftmaxAttention.Config):
        """Fields of grouped-query attention."""

        n_kv_heads: int | None = None
        """Key/value heads; None: the largest divisor of n_heads up to n_heads / 4, at least 1."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(
                self.n_kv_heads is None or self.n_kv_heads > 0, "n_kv_heads", "a number above 0"
            )

    @staticmethod
    def kv_heads(config: SoftmaxAttention.Config, dims: Dims) -> int:
        assert isinstance(config, GQA.Config)
        if config.n_kv_heads is not None:
            return config.n_kv_heads
        return max((n for n in range(1, dims.n_heads // 4 + 1) if dims.n_heads % n == 0), default=1)
