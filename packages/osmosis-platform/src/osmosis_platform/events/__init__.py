"""What happened: ordered events and log lines of a stream, told to who listens and kept in sealed segments."""
