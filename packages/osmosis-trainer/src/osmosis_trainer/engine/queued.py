"""What every engine does alike: checks of what is asked, and operations put in order and done once by id.

Leaves the weights to a subclass, whose underscored methods run on the engine's one thread, one after another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.checks import check_adapter_name, lora_config
from osmosis_trainer.engine.operations import Operations
from osmosis_trainer.engine.protocol import AdamConfig, Capabilities, ForwardResult, LoraConfig, OptimResult
from osmosis_trainer.losses import LossConfig


class QueuedEngine(ABC):
    """The asynchronous half of a `PolicyEngine`; see there for what each operation means.

    Args:
        submit: Queues work for the engine's thread, first come first served.
    """

    def __init__(self, submit: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        self._operations = Operations(submit)

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this engine can do."""

    async def create_adapter(
        self,
        adapter: str,
        *,
        rank: int = 16,
        alpha: float = 32.0,
        seed: int = 0,
        targets: Sequence[str] | None = None,
        op_id: str | None = None,
    ) -> None:
        """See `PolicyEngine.create_adapter`."""
        check_adapter_name(adapter, self.capabilities.base)
        config = lora_config(self.capabilities, rank, alpha, seed, targets)
        await self._run("create_adapter", adapter, op_id, partial(self._create, adapter, config))

    async def delete_adapter(self, adapter: str, *, op_id: str | None = None) -> None:
        """See `PolicyEngine.delete_adapter`."""
        await self._run("delete_adapter", adapter, op_id, partial(self._delete, adapter))

    async def publish(self, adapter: str, *, op_id: str | None = None) -> str:
        """See `PolicyEngine.publish`."""
        return await self._run("publish", adapter, op_id, partial(self._publish, adapter))

    async def retire(self, version: str, *, op_id: str | None = None) -> None:
        """See `PolicyEngine.retire`."""
        await self._run("retire", version, op_id, partial(self._retire, version))

    async def forward_backward(
        self, adapter: str, datums: Sequence[Datum], loss: LossConfig, *, op_id: str | None = None
    ) -> ForwardResult:
        """See `PolicyEngine.forward_backward`."""
        work = partial(self._pass, adapter, tuple(datums), loss, backward=True)
        return await self._run("forward_backward", adapter, op_id, work)

    async def forward(
        self, adapter: str, datums: Sequence[Datum], loss: LossConfig, *, op_id: str | None = None
    ) -> ForwardResult:
        """See `PolicyEngine.forward`."""
        work = partial(self._pass, adapter, tuple(datums), loss, backward=False)
        return await self._run("forward", adapter, op_id, work)

    async def optim_step(self, adapter: str, adam: AdamConfig, *, op_id: str | None = None) -> OptimResult:
        """See `PolicyEngine.optim_step`."""
        return await self._run("optim_step", adapter, op_id, partial(self._step, adapter, adam))

    async def save_state(self, adapter: str, path: Path, *, op_id: str | None = None) -> None:
        """See `PolicyEngine.save_state`."""
        await self._run("save_state", adapter, op_id, partial(self._save, adapter, path))

    async def load_state(self, adapter: str, path: Path, *, op_id: str | None = None) -> None:
        """See `PolicyEngine.load_state`."""
        check_adapter_name(adapter, self.capabilities.base)
        await self._run("load_state", adapter, op_id, partial(self._load, adapter, path))

    async def export_peft(self, version: str, folder: Path, *, op_id: str | None = None) -> None:
        """See `PolicyEngine.export_peft`."""
        await self._run("export_peft", version, op_id, partial(self._export_peft, version, folder))

    async def export_merged(self, version: str, folder: Path, *, op_id: str | None = None) -> None:
        """See `PolicyEngine.export_merged`."""
        await self._run("export_merged", version, op_id, partial(self._export_merged, version, folder))

    async def _run[T](self, kind: str, name: str, op_id: str | None, work: Callable[[], T]) -> T:
        return await self._operations.run(f"{kind} of {name!r}", op_id, work)

    @abstractmethod
    def _create(self, name: str, config: LoraConfig) -> None: ...

    @abstractmethod
    def _delete(self, name: str) -> None: ...

    @abstractmethod
    def _publish(self, name: str) -> str: ...

    @abstractmethod
    def _retire(self, version: str) -> None: ...

    @abstractmethod
    def _pass(self, name: str, datums: tuple[Datum, ...], loss: LossConfig, *, backward: bool) -> ForwardResult: ...

    @abstractmethod
    def _step(self, name: str, adam: AdamConfig) -> OptimResult: ...

    @abstractmethod
    def _save(self, name: str, path: Path) -> None: ...

    @abstractmethod
    def _load(self, name: str, path: Path) -> None: ...

    @abstractmethod
    def _export_peft(self, name: str, folder: Path) -> None: ...

    @abstractmethod
    def _export_merged(self, name: str, folder: Path) -> None: ...
