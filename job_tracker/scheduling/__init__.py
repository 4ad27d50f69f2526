"""Which queued jobs start: policies over a snapshot, without a clock or I/O of their own."""
