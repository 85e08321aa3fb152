"""Block-sparse attention: near blocks, the first ones, and some drawn at random."""

from dataclasses import dataclass

from txlab.core.config import Dims
from txlab.nn.attention.heads import GQA
from txlab.nn.attention.mixer import attention
from txlab.nn.blocks import BlockGraph
from txlab.nn.mask import Mask


@attention("bigbird")
class BigBird(GQA):
    """Blocks see near, global and random blocks (Zaheer et al. 2020); time linear in the length.

    The blocks of a document are counted from its start. Up to n_window + n_global + n_random of
    them all see one another: full attention, as in any short row. Which blocks are drawn follows
    from the seed, the layer and the number of the block, and is the same for all heads: for a
    causal model it never changes as a row grows. Without causality what a block draws sees it too.
    """

    @dataclass
    class Config(GQA.Config):
        """Fields of block-sparse attention."""

        block: int = 64
        """Tokens in a block."""
        n_random: int = 3
        """Earlier blocks that each block draws, near and global ones apart."""
        n_window: int = 3
        """A block sees itself and the `n_window - 1` blocks before it (and after, both ways)."""
        n_global: int = 2
        """The first blocks of each document, which see and are seen by all."""
        seed: int = 0
        """Other seeds draw other blocks."""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.require(self.block > 0, "block", "a number above 0")
            self.require(self.n_window > 0, "n_window", "a number above 0 (1: the own block)")
            self.require(self.n_random >= 0, "n_random", "a number from 0 up")
            self.require(self.n_global >= 0, "n_global", "a number from 0 up")
            self.require(0 <= self.seed < 2**32, "seed", "0 <= seed < 2^32")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.blocks = BlockGraph(
            size=config.block,
            n_random=config.n_random,
            n_window=config.n_window,
            n_global=config.n_global,
            seed=config.seed,
            layer=dims.layer or 0,
        )

    def narrow(self, mask: Mask) -> Mask:
        return mask.narrow(window=self.window, sinks=self.sinks, blocks=self.blocks)
