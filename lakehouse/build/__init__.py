"""One build: plan, stage, audit, publish; batches from outside (`intake`); which days are stale, late or ready."""
