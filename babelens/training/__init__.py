"""Training by recipes, from files to a saved model with its card.

`babelens train` runs a recipe (`run.RecipeRun`) in these parts:

    recipe file ── schema.load_recipe ──> Recipe               the keys, checked (checks)
         Recipe ── data.RecipeData ─────> corpora, languages   the training data and its languages
                ── build.ModelBuilder ──> processor, model     new ones, or a saved model to continue from
                ── run.RecipeRun ───────> trained model        stage after stage, from checkpoints (resuming)
                ── results.Reporting ───> evaluation, card     the results of the saved model

The parts are the same for all methods, unless the method's module (`mla`, `smalr`, `rc3`, `rc3_tasks`) declares a
subclass of one in its `run.Workflow`. `trim` and `babelens evaluate task` use only `RecipeData`.
"""
