"""Training by recipes: what the commands do, from files to a saved model with its card.

How `babelens train` runs a recipe (`base.RecipeRun`), and which part does what:

    recipe file ── loading.load_recipe ─> Recipe                the keys, checked (recipe_checks, argument_checks)
         Recipe ── data.RecipeData ─────> corpora, languages    what is trained on, and in which languages
                ── building.ModelBuilder > processor, model     new ones, or those that training goes on from
                ── training.StagedTraining > trained model      stage after stage, from checkpoints (resuming)
                ── reporting.Reporting ─> evaluation, card      the numbers of the saved model

The parts are the same for all methods, unless the method's module (`loading`, `mla`, `words`, `rc3`) declares a
subclass of one: a `Workflow` names the five classes. `trimming` and `babelens evaluate task` read a recipe's data
with `RecipeData` alone.
"""
