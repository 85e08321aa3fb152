"""How a run is spread over devices: who holds which rows, and which part of which weight."""
