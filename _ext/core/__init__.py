"""What all rooms stand on: clocks, memory, messages, ids, heaps and rings."""
