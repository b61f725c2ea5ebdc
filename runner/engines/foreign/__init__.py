"""Images of no catalog: what is inside, and the engine that runs them beside a run's own."""
