"""What each sub-command of `churn-jax` does; imported only when it is called."""
