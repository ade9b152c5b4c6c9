from babelens.evaluation.results import read_results


def numbers_of(path, dataset=None):
    """Language -> metric -> number of a dataset, by default of the only one that is not a vocabulary."""
    found = [each for each in read_results(path) if each.dataset != "vocabulary" or dataset == "vocabulary"]
    [name] = {each.dataset for each in found if dataset in (None, each.dataset)}
    numbers = {}
    for each in found:
        if each.dataset == name:
            numbers.setdefault(each.language, {})[each.metric] = each.value
    return numbers


def metrics_of(report):
    return {
        language: {name: value for name, value in numbers.items() if name != "n" and not name.startswith("n_")}
        for language, numbers in report.items()
    }
