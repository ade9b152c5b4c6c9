// What the page says, in the languages of its visitors: one table. A language without a row sees the English one.
// `{of}` is what is searched for, `{n}` a number; the languages of queries are another matter, and the model's.

const STRINGS = {
  en: {
    title: "Image search", skip: "Skip to the results", query: "Describe the images", language: "Language of the description",
    choose: "Choose a language", any: "Any language", model: "Languages of the model", browser: "Languages of this browser",
    another: "Another language …", tag: "Language tag (BCP 47)", file: "Search by an image …",
    hint: "Results appear as you type. Drop or paste an image to search with it.", clear: "Clear", more: "Show more",
    drop: "Drop the image to search with it", searching: "Searching …", loading: "Loading …", retry: "Try again",
    results: "Results, best first", which: "In which language is it? It is never guessed.",
    one: "1 image for {of}, best first", many: "{n} images for {of}, best first", none: "No image for {of}",
    unstated: "The model does not state that it reads {language}: the results may mean nothing.",
    like: "More like this", likeFile: "More like {file}", images: "Images like {file}", open: "Open {file}", theImage: "the image",
    anImage: "an image of the folder", pasted: "pasted image", score: "score {n}", copies: "{file} ({n} files)",
    count: "{n} images, searched with {model}", noImage: "This file is not an image.",
    tooLarge: "The image is too large: {n} MiB are allowed.", gone: "The server does not answer. Is it still running?",
    status: "The server answered with status {n}.",
    cut: "Only the beginning of the text is read, some {n} characters.",
  },
  de: {
    title: "Bildersuche", skip: "Zu den Ergebnissen", query: "Beschreiben Sie die Bilder", language: "Sprache der Beschreibung",
    choose: "Sprache wählen", any: "Jede Sprache", model: "Sprachen des Modells", browser: "Sprachen dieses Browsers",
    another: "Andere Sprache …", tag: "Sprachkürzel (BCP 47)", file: "Mit einem Bild suchen …",
    hint: "Ergebnisse erscheinen beim Tippen. Ein Bild lässt sich hierher ziehen oder einfügen.", clear: "Leeren", more: "Mehr zeigen",
    drop: "Bild loslassen, um damit zu suchen", searching: "Suche …", loading: "Lädt …", retry: "Noch einmal",
    results: "Ergebnisse, das beste zuerst", which: "In welcher Sprache ist das? Sie wird nie geraten.",
    one: "1 Bild zu {of}", many: "{n} Bilder zu {of}, das beste zuerst", none: "Kein Bild zu {of}",
    unstated: "Das Modell sagt nicht, dass es {language} liest: Die Ergebnisse sagen vielleicht nichts.",
    like: "Ähnliche Bilder", likeFile: "Bilder wie {file}", images: "Bilder wie {file}", open: "{file} öffnen", theImage: "das Bild",
    anImage: "ein Bild des Ordners", pasted: "eingefügtes Bild", score: "Wert {n}", copies: "{file} ({n} Dateien)",
    count: "Bilder: {n}, gesucht mit {model}", noImage: "Diese Datei ist kein Bild.",
    tooLarge: "Das Bild ist zu groß: Erlaubt sind {n} MiB.", gone: "Der Server antwortet nicht. Läuft er noch?",
    status: "Der Server antwortete mit Status {n}.",
    cut: "Gelesen wird nur der Anfang des Textes, rund {n} Zeichen.",
  },
  es: {
    title: "Buscar imágenes", skip: "Ir a los resultados", query: "Describa las imágenes", language: "Idioma de la descripción",
    choose: "Elija un idioma", any: "Cualquier idioma", model: "Idiomas del modelo", browser: "Idiomas de este navegador",
    another: "Otro idioma …", tag: "Etiqueta de idioma (BCP 47)", file: "Buscar con una imagen …",
    hint: "Los resultados aparecen al escribir. También puede soltar o pegar una imagen.", clear: "Borrar", more: "Mostrar más",
    drop: "Suelte la imagen para buscar con ella", searching: "Buscando …", loading: "Cargando …", retry: "Reintentar",
    results: "Resultados, el mejor primero", which: "¿En qué idioma está? Nunca se adivina.",
    one: "1 imagen para {of}", many: "{n} imágenes para {of}, la mejor primero", none: "Ninguna imagen para {of}",
    unstated: "El modelo no declara que lea {language}: los resultados quizá no signifiquen nada.",
    like: "Imágenes parecidas", likeFile: "Parecidas a {file}", images: "Imágenes como {file}", open: "Abrir {file}", theImage: "la imagen",
    anImage: "una imagen de la carpeta", pasted: "imagen pegada", score: "puntuación {n}", copies: "{file} ({n} archivos)",
    count: "Imágenes: {n}, buscadas con {model}", noImage: "Este archivo no es una imagen.",
    tooLarge: "La imagen es demasiado grande: se permiten {n} MiB.", gone: "El servidor no responde. ¿Sigue en marcha?",
    status: "El servidor respondió con el estado {n}.",
    cut: "Solo se lee el comienzo del texto, unos {n} caracteres.",
  },
  fr: {
    title: "Recherche d’images", skip: "Aller aux résultats", query: "Décrivez les images", language: "Langue de la description",
    choose: "Choisissez une langue", any: "Toute langue", model: "Langues du modèle", browser: "Langues de ce navigateur",
    another: "Autre langue …", tag: "Code de langue (BCP 47)", file: "Chercher par une image …",
    hint: "Les résultats apparaissent pendant la saisie. On peut aussi déposer ou coller une image.", clear: "Effacer", more: "En voir plus",
    drop: "Déposez l’image pour chercher avec elle", searching: "Recherche …", loading: "Chargement …", retry: "Réessayer",
    results: "Résultats, le meilleur d’abord", which: "En quelle langue est-ce ? Elle n’est jamais devinée.",
    one: "1 image pour {of}", many: "{n} images pour {of}, la meilleure d’abord", none: "Aucune image pour {of}",
    unstated: "Le modèle ne dit pas qu’il lit {language} : les résultats peuvent ne rien signifier.",
    like: "Images semblables", likeFile: "Semblables à {file}", images: "Images comme {file}", open: "Ouvrir {file}", theImage: "l’image",
    anImage: "une image du dossier", pasted: "image collée", score: "score {n}", copies: "{file} ({n} fichiers)",
    count: "Images : {n}, cherchées avec {model}", noImage: "Ce fichier n’est pas une image.",
    tooLarge: "L’image est trop grande : {n} Mio sont permis.", gone: "Le serveur ne répond pas. Est-il encore lancé ?",
    status: "Le serveur a répondu par l’état {n}.",
    cut: "Seul le début du texte est lu, environ {n} caractères.",
  },
  pl: {
    title: "Wyszukiwanie obrazów", skip: "Przejdź do wyników", query: "Opisz obrazy", language: "Język opisu",
    choose: "Wybierz język", any: "Dowolny język", model: "Języki modelu", browser: "Języki tej przeglądarki",
    another: "Inny język …", tag: "Znacznik języka (BCP 47)", file: "Szukaj obrazem …",
    hint: "Wyniki pojawiają się podczas pisania. Obraz można też upuścić lub wkleić.", clear: "Wyczyść", more: "Pokaż więcej",
    drop: "Upuść obraz, aby nim szukać", searching: "Szukam …", loading: "Wczytuję …", retry: "Spróbuj ponownie",
    results: "Wyniki, najlepszy pierwszy", which: "W jakim to języku? Nigdy nie jest zgadywany.",
    one: "Obrazy dla {of}: 1", many: "Obrazy dla {of}: {n}, najlepszy pierwszy", none: "Brak obrazów dla {of}",
    unstated: "Model nie podaje, że czyta {language}: wyniki mogą nic nie znaczyć.",
    like: "Podobne obrazy", likeFile: "Podobne do {file}", images: "Obrazy jak {file}", open: "Otwórz {file}", theImage: "obraz",
    anImage: "obraz z folderu", pasted: "wklejony obraz", score: "wynik {n}", copies: "{file} (plików: {n})",
    count: "Obrazy: {n}, wyszukiwane modelem {model}", noImage: "Ten plik nie jest obrazem.",
    tooLarge: "Obraz jest za duży: dozwolone {n} MiB.", gone: "Serwer nie odpowiada. Czy nadal działa?",
    status: "Serwer odpowiedział stanem {n}.",
    cut: "Czytany jest tylko początek tekstu, około {n} znaków.",
  },
  uk: {
    title: "Пошук зображень", skip: "До результатів", query: "Опишіть зображення", language: "Мова опису",
    choose: "Виберіть мову", any: "Будь-яка мова", model: "Мови моделі", browser: "Мови цього браузера",
    another: "Інша мова …", tag: "Тег мови (BCP 47)", file: "Шукати за зображенням …",
    hint: "Результати з’являються під час введення. Зображення можна перетягнути або вставити.", clear: "Очистити", more: "Показати більше",
    drop: "Відпустіть зображення, щоб шукати за ним", searching: "Пошук …", loading: "Завантаження …", retry: "Спробувати ще раз",
    results: "Результати, найкращий перший", which: "Якою це мовою? Її ніколи не вгадують.",
    one: "Зображення для {of}: 1", many: "Зображення для {of}: {n}, найкраще перше", none: "Немає зображень для {of}",
    unstated: "Модель не заявляє, що читає мову {language}: результати можуть нічого не означати.",
    like: "Схожі зображення", likeFile: "Схожі на {file}", images: "Зображення, схожі на {file}", open: "Відкрити {file}",
    theImage: "зображення", anImage: "зображення з теки", pasted: "вставлене зображення", score: "оцінка {n}",
    copies: "{file} (файлів: {n})", count: "Зображення: {n}, пошук моделлю {model}", noImage: "Цей файл не є зображенням.",
    tooLarge: "Зображення завелике: дозволено {n} МіБ.", gone: "Сервер не відповідає. Чи він ще працює?",
    status: "Сервер відповів статусом {n}.",
    cut: "Читається лише початок тексту, приблизно {n} символів.",
  },
};

const chosen = (navigator.languages ?? []).map((tag) => tag.split("-")[0]).find((tag) => tag in STRINGS) ?? "en";

/** A string of the table, with its values filled in. */
export function say(name, values = {}) {
  const text = STRINGS[chosen][name] ?? STRINGS.en[name];
  return text.replace(/\{(\w+)\}/g, (_, key) => values[key]);
}

/** Puts the strings into what names them: `data-say` for the text, `data-say-label` for the label. */
export function sayAll(root = document) {
  document.documentElement.lang = chosen;
  for (const each of root.querySelectorAll("[data-say]")) each.textContent = say(each.dataset.say);
  for (const each of root.querySelectorAll("[data-say-label]")) each.setAttribute("aria-label", say(each.dataset.sayLabel));
}
