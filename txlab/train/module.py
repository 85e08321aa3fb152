"""The one Lightning module: a batch is one optimizer step, given as a list of micro-batches."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from txlab.core.errors import RunError
from txlab.data.batch import Batch, token_count
from txlab.objectives.objective import Objective
from txlab.train import snapshot
from txlab.train.averaging import Averaging, refuse_two, source_of
from txlab.train.config import Train
from txlab.train.history import Row, Stopwatch, Sums, Window, held_out_pairs, held_out_row
from txlab.train.masters import Masters
from txlab.train.rows import next_row, over_peers, refuse_no_update, validation_due
from txlab.train.schedule.schedule import Schedule
from txlab.train.state import (
    Counters,
    match_parameters,
    optimizer_state,
    restore_optimizer,
    restore_random,
    seed_everything,
)
from txlab.train.strategy.peers import Peers, peers_of, sharded
from txlab.train.strategy.shards import by_mesh
from txlab.train.throughput import peak_flops
from txlab.train.update import Updater

NEVER = sys.maxsize


class TrainModule(LightningModule):
    """Trains `model` towards `objective`; results do not depend on how a step is split.

    The gradient of a step is the sum of its losses divided by its supervised tokens, both over all
    micro-batches and all ranks. Intervals, validation and the end follow our own `counters`, never
    Lightning's.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        *,
        make_optimizer: Callable[[nn.Module], Optimizer],
        schedule: Schedule,
        train: Train,
        total_steps: int,
        seed: int = 0,
        token_bytes: Tensor | None = None,
        validates: bool = True,
        val_sources: Sequence[str | None] = (None,),
        flops_per_token: float = 0.0,
        peak_flops: float = 0.0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.objective = objective
        self.config = train
        self.total_steps = total_steps
        self.seed = seed
        self.token_bytes = token_bytes
        self.validates = validates
        self.val_sources = val_sources
        """Name of what each validation loader measures; None: of all there is."""
        self.flops_per_token = flops_per_token
        self.peak_flops = peak_flops
        self._make_optimizer, self._schedule = make_optimizer, schedule
        if train.precision == "64-true":  # before anything is restored: float32 would round it
            model.double()
        self.optimizer = make_optimizer(model)
        refuse_two(self.optimizer, train.ema)
        self.update = Updater(self.optimizer, schedule, train)
        self.masters: Masters | None = None
        self.averaging = Averaging(model)
        self.counters = Counters()
        self.window = Window()
        self.held_out = Sums()
        self.watch = Stopwatch()
        self.last_row: Row = {}
        """Newest value of every column."""
        self.resumed: dict[str, Any] = {}
        """State of a resumed run that waits for the first step: scaler, generators."""
        self._unplaced: dict[str, Any] | None = None
        """Moments of an optimizer over parameters that the strategy is about to replace."""
        self._peers: Peers | None = None
        self.stopped: str | None = None
        """Where and why a callback has ended the run before its last step."""
        self.given_up: str | None = None
        """Why the run cannot go on; it ends with this error once the step is saved."""
        self.last_loss: tuple[Tensor, Tensor] | None = None
        """Of the last step: this rank's sum of losses, and the items of all ranks."""
        self._seeded = False
        self._validating = False
        self._evaluating = contextlib.ExitStack()

    @property
    def peers(self) -> Peers:
        """This rank's place among those that hold other rows."""
        if self._peers is None:
            self._peers = peers_of(self.trainer)
        return self._peers

    def configure_model(self) -> None:
        if sharded(self.trainer):
            self._unplaced = optimizer_state(self.optimizer)
            self.trainer.strategy.place(self)  # pyright: ignore[reportAttributeAccessIssue]
        if self.config.precision == "bf16-true":  # while the weights are still exact
            self.masters = Masters(self.model.parameters())

    def configure_optimizers(self) -> Optimizer:
        unplaced, self._unplaced = self._unplaced, None
        if unplaced is not None:
            # Placing has put other tensors where the parameters were: an optimizer over those, with
            # the moments, if any, that a resumed run has brought.
            self.optimizer = self._make_optimizer(self.model)
            self.optimizer.param_groups[:] = by_mesh(self.optimizer.param_groups)
        if self.masters is not None:
            self.masters.adopt(self.optimizer)
        if unplaced is not None:  # of the masters: those of rounded parameters would be rounded too
            restore_optimizer(self.optimizer, unplaced, "the optimizer before placing")
        self.update = Updater(self.optimizer, self._schedule, self.config, self.masters)
        source = source_of(self.optimizer, self.config, self.resumed.get("averages", {}))
        self.averaging = Averaging(self.model, source, self.masters)
        return self.optimizer

    # --- one step

    def training_step(self, micro_batches: Sequence[Batch], batch_idx: int) -> None:
        count = torch.stack([self.objective.count(batch) for batch in micro_batches]).sum()
        n_tokens = [token_count(batch) for batch in micro_batches]
        both = torch.stack([count, torch.stack(n_tokens).sum().to(count)])
        both = self.peers.total(both)
        count, tokens = both[0], int(both[1])
        scale = self.peers.size / count.clamp(min=1)  # the strategy takes the mean of the ranks
        total = torch.zeros_like(scale)
        loads: tuple[Tensor, ...] = ()
        for i, batch in enumerate(micro_batches):
            loss = self.objective(self.model, batch)
            self.window.sums.add({"loss": (loss.sum, loss.count), **loss.metrics})
            total = total + loss.sum.detach()
            mine = tuple(load * (n_tokens[i] > 0) for load in loss.loads)  # of a filler: none
            loads = tuple(map(torch.add, loads, mine)) if loads else mine
            with self._outside_autocast(), self._sync_gradients(i == len(micro_batches) - 1):
                self.manual_backward(loss.sum * scale)
        if finish := getattr(self.trainer.strategy, "finish_gradients", None):
            finish(self.masters.of if self.masters is not None else lambda p: p)
        if self._averages_itself:
            assert self.masters is not None
            self.masters.mean_over_ranks()
        before = self.counters.updates
        with self._outside_autocast():
            note = self.update(
                count,
                total,
                self.counters,
                self.window,
                step=self._step_optimizer,
                scaler=self.scaler,
                watch=lambda: self.tell("on_gradients"),
            )
            if self.counters.updates > before:
                self.averaging.update(self.counters.updates)
        if loads and self.counters.updates > before:
            self._rebalance(loads)
        self.last_loss = total, count
        if note is not None:
            self.tell("on_note", note)
        self.counters.step += 1
        self.counters.tokens += tokens
        self.window.tokens += tokens

    def _rebalance(self, loads: Sequence[Tensor]) -> None:
        """Move the biases of mixtures of experts by the loads of the whole step, as exact sums."""
        flat = self.peers.total(torch.cat([load.float() for load in loads]))
        model: Any = self.model
        model.rebalance(flat.split([len(load) for load in loads]))

    def _step_optimizer(self) -> None:
        wrapped = self.optimizers()  # Lightning's wrapper, for the sake of other people's hooks
        assert isinstance(wrapped, LightningOptimizer)
        wrapped.step()

    @property
    def scaler(self) -> Any:
        """The GradScaler of `16-mixed`; None in every other precision."""
        return getattr(self.trainer.precision_plugin, "scaler", None)

    def _outside_autocast(self) -> contextlib.AbstractContextManager[Any]:
        kind = self.device.type
        if torch.is_autocast_enabled(kind):
            return torch.autocast(kind, enabled=False)
        return contextlib.nullcontext()

    def _sync_gradients(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        sync = last and not self._averages_itself
        block = None if sync else getattr(self.trainer.strategy, "block_backward_sync", None)
        return contextlib.nullcontext() if block is None else block()

    @property
    def _averages_itself(self) -> bool:
        """Whether gradients are averaged here, in float32: DDP would do so in bfloat16."""
        return self.masters is not None and self.peers.size > 1 and not sharded(self.trainer)

    # --- the end of a step: rows, validation, saving

    def on_train_start(self) -> None:
        if self.scaler is not None and self.resumed.get("scaler"):
            self.scaler.load_state_dict(self.resumed["scaler"])
        match_parameters(self.optimizer)
        snapshot.put_back_callbacks(self.trainer, self.resumed)
        if self.peers.rank and self.window.sums.values is not None:
            self.window.sums.values.zero_()  # resumed ones are those of all ranks together
        self.watch.start()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self._seeded:
            return
        # Here, not earlier: whatever was set up until now may have drawn numbers as well.
        self._seeded = True
        rank = self.peers.rank  # ranks with the same rows draw the same numbers
        generators = self.resumed.get("random", [])
        if rank < len(generators):
            restore_random(generators[rank])
        else:
            seed_everything(self.seed, 1 + rank)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # Lightning asks for validation when its own count divides by this; ours decides instead.
        self._validating = validation_due(self)
        self.trainer.val_check_batch = 1 if self._validating else NEVER
        if not self._validating:
            self._finish_step()

    def on_validation_start(self) -> None:
        self.watch.stop()
        self._evaluating.enter_context(self.averaging.evaluated())
        self.held_out = Sums()
        if self.device.type == "cpu" and self.peak_flops:
            # The training clock stands still: a good moment to see whether the CPU can do better.
            again = peak_flops(self.device, self.config.precision, again=True)
            self.peak_flops = max(self.peak_flops, again * self.trainer.world_size)

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        loss = self.objective(self.model, batch)
        labels = batch["labels"]
        if self.token_bytes is not None:
            self.token_bytes = self.token_bytes.to(labels.device)
        source = self.val_sources[dataloader_idx]
        self.held_out.add(held_out_pairs(loss, labels, self.token_bytes, source))

    def on_validation_epoch_end(self) -> None:
        self.held_out = over_peers(self.held_out, self.peers)
        self.last_row.update(held_out_row(self.held_out))
        if "val/loss" in self.last_row:  # for other people's callbacks: early stopping and the like
            self.log("val/loss", self.last_row["val/loss"], logger=False, sync_dist=True)

    def on_validation_end(self) -> None:
        self._finish_step()

    def on_train_end(self) -> None:
        refuse_no_update(self.counters)

    def _finish_step(self) -> None:
        step = self.counters.step
        if step == self.total_steps:
            refuse_no_update(self.counters)
        if self._validating or step % self.config.log_every == 0 or step == self.total_steps:
            self.tell("on_row", next_row(self, validated=self._validating))
        self._evaluating.close()  # what follows is about the weights that train
        self.tell("on_step")
        if self.given_up is not None:
            raise RunError(f"{self.given_up}. The run ends at step {step}, which is saved.")
        self.watch.start()

    def state(self) -> dict[str, Any]:
        """`snapshot.taken`: for a checkpoint, and for all ranks to ask together."""
        return snapshot.taken(self)

    def load_state(self, state: dict[str, Any], source: str) -> None:
        """Undo `state`, before the first step; the model's weights are loaded already."""
        snapshot.put_back(self, state, source)

    def tell(self, hook: str, *args: Any) -> None:
        """Call a hook of ours (`txlab.train.callbacks`) on every callback that has it."""
        for callback in self.trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            method = getattr(callback, hook, None)
            if method is not None:
                method(self.trainer, self, *args)
