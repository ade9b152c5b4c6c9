"""Training by recipes, from files to a saved model with its card.

`babelens train` runs a recipe (`base.RecipeRun`) in these parts:

    recipe file ── loading.load_recipe ─> Recipe                the keys, checked (recipe_checks, argument_checks)
         Recipe ── data.RecipeData ─────> corpora, languages    the training data and its languages
                ── building.ModelBuilder > processor, model     new ones, or a saved model to continue from
                ── training.StagedTraining > trained model      stage after stage, from checkpoints (resuming)
                ── reporting.Reporting ─> evaluation, card      the results of the saved model

The parts are the same for all methods, unless the method's module (`loading`, `mla`, `words`, `rc3`) declares a
subclass of one: a `Workflow` names the five classes. `trimming` and `babelens evaluate task` use only `RecipeData`, to
read a recipe's data.
"""
