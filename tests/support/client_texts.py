TEXTS = ["a red car", "ein rotes Auto", "un chien gris", "一只灰狗"]
