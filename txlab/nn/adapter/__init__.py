"""Few trained weights beside a frozen model, slot `adapter`."""

from txlab.nn.adapter.adapter import Adapter, adapter, adapter_of
from txlab.nn.adapter.injected import Injected
from txlab.nn.adapter.lora import LoRA
from txlab.nn.adapter.none import NoAdapter

__all__ = ["Adapter", "Injected", "LoRA", "NoAdapter", "adapter", "adapter_of"]
