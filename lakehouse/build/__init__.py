"""One build: plan, stage, audit, publish; which days are stale, late or ready."""
