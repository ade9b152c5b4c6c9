from tests.support.tiny_training import COLORS, SHAPES

SIZES = {"small": ("kleiner", "petit"), "big": ("großer", "grand"), "old": ("alter", "vieux")}


def sentences():
    return [
        {
            "en": f"a {size} {color} {shape}",
            "de": f"{german} {form} in {farbe}",
            "fr": f"{french} {forme} {couleur}",
        }
        for size, (german, french) in SIZES.items()
        for color, (farbe, couleur, _) in COLORS.items()
        for shape, (form, forme) in SHAPES.items()
    ]


def write_tsv(file, languages, rows):
    lines = ["\t".join(languages), *("\t".join(row[tag] for tag in languages) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
