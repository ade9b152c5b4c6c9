"""Training by recipes. `babelens train` runs a recipe (`run.RecipeRun`): `schema` and `checks` check its keys; `data`
reads its corpora and their languages; `build` makes the processor and the model, or loads them to continue; `run`
trains stage after stage, from checkpoints; and `results` evaluates the saved model and writes its card. A method's
module (`mla`, `smalr`, `rc3`, `rc3_tasks`) may declare subclasses of these parts, which its builder names."""
