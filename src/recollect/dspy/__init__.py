"""The agents as DSPy programs: their prompts are the predictors' instructions and demonstrations. Needs DSPy 3."""
