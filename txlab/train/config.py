"""How long and how a run trains: the `train.*` keys."""

from dataclasses import dataclass

from txlab.core.config import check_numbers
from txlab.core.errors import RequestError

RECOMPUTES = ("none", "full", "selective")
PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "16-mixed", "64-true")


@dataclass
class Train:
    """Length, intervals and precision of a run. Intervals count optimizer steps."""

    steps: int | None = None
    """Optimizer steps to train for. Give one of steps, tokens, epochs; none of them: one epoch."""
    tokens: int | None = None
    """Tokens to train on, rounded up to whole steps."""
    epochs: int | None = None
    """Passes over the training data, rounded up to whole steps: the last begins the next pass."""
    val_every: int | None = None
    """Steps between validations; None: only at the end. The end always validates."""
    val_batches: int | None = None
    """Batches of held-out data a validation reads; None: all of it."""
    save_every: int | None = None
    """Steps between checkpoints; None: only at the end. The end always saves."""
    keep_last: int = 2
    """Number of newest checkpoints to keep; older ones are removed once a newer one is complete."""
    keep_best: int = 0
    """Number of checkpoints to keep that are best by `best`; saved when they are validated."""
    keep_every: int | None = None
    """Save at each step that is a multiple of this, and keep that for ever; None: at none."""
    best: str = "val/loss"
    """Figure of the log that says how good a checkpoint is: ckpt=RUN/best takes the best."""
    best_mode: str = "min"
    """Which is best: the min or the max of that figure."""
    stop_at: int | None = None
    """Step to save and stop at, as of a longer run, whose schedule stays; None: at its end."""
    log_every: int = 10
    """Steps between rows of the log; each row covers all the steps since the one before."""
    clip: float | None = 1.0
    """Largest L2 norm of a step's whole gradient; None: no clipping."""
    skip_nonfinite: bool = True
    """Leave all but the count alone at a step whose gradient is not finite; false: end the run."""
    max_skipped: int = 100
    """Steps in a row that may have no finite gradient: then the run is given up as diverged."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then evaluated and saved; None: none."""
    ema_every: int = 1
    """Updates between two of its own."""
    ema_warmup: bool = True
    """Its n-th decay is at most (1 + n) / (10 + n), so the first weights are soon forgotten."""
    one_batch: bool = False
    """Train on the first step's batch again and again: a model that cannot learn it is broken."""
    compile: bool = False
    """Compile the model's blocks with torch.compile."""
    activation_checkpointing: str = "none"
    """What the backward pass computes again instead of keeping it, block by block: none, full,
    selective (all but matrix products and attention), or a number n: every n-th block in full."""
    precision: str = "32-true"
    """32-true, bf16-mixed, bf16-true, 16-mixed (with a gradient scaler) or 64-true."""
    pictures: bool = True
    """Draw loss.png and curves.png when the run ends."""
    sample: str | None = ""
    """Prompt of the text generated at each validation; "" begins a document; null: no text."""

    def __post_init__(self) -> None:
        lengths = {key: getattr(self, key) for key in ("steps", "tokens", "epochs")}
        given = [f"train.{key}={value}" for key, value in lengths.items() if value is not None]
        if len(given) > 1:
            raise RequestError(f"{' and '.join(given)} contradict each other: set one of them.")
        whole = {**lengths, "keep_last": self.keep_last, "log_every": self.log_every}
        whole |= {"max_skipped": self.max_skipped, "ema_every": self.ema_every}
        whole |= {key: getattr(self, key) for key in ("val_every", "val_batches", "save_every")}
        whole |= {key: getattr(self, key) for key in ("keep_every", "stop_at")}
        for key, value in whole.items():
            if value is not None and value < 1:
                raise RequestError(f"train.{key}={value}: expected a number of at least 1.")
        if self.keep_best < 0:
            raise RequestError(f"train.keep_best={self.keep_best}: expected 0 or more.")
        if self.best_mode not in ("min", "max"):
            raise RequestError(f"train.best_mode={self.best_mode}: expected min or max.")
        if self.clip is not None and not self.clip > 0:
            raise RequestError(
                f"train.clip={self.clip}: expected a norm above 0, or null for none."
            )
        if self.ema is not None and not 0 < self.ema < 1:
            raise RequestError(f"train.ema={self.ema}: expected a decay between 0 and 1.")
        how = self.activation_checkpointing
        if how not in RECOMPUTES and not (how.isdecimal() and int(how)):
            raise RequestError(
                f"train.activation_checkpointing={how}: expected {', '.join(RECOMPUTES)}, or a "
                "number n to recompute every n-th block."
            )
        if self.precision not in PRECISIONS:
            raise RequestError(
                f"train.precision={self.precision}: expected one of {', '.join(PRECISIONS)}."
            )
        check_numbers(self, "train.")
