"""Other implementations, timed beside ours; none of their code lives here."""
