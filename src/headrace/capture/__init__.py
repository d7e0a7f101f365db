"""How do changes leave the log? Slot to messages to changes, in order, confirmed only when durable."""
