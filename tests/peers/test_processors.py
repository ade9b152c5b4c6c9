"""transformers' `ProcessorTesterMixin` on every processor, and its `ImageProcessingTestMixin` on the image processor.
The suite gives texts without a language: here they are English, as a user would state."""

import copy
import shutil
import unittest
from typing import Any, ClassVar

import pytest
from transformers_tests.test_image_processing_common import ImageProcessingTester, ImageProcessingTestMixin
from transformers_tests.test_processing_common import ProcessorTesterMixin

from babelens.processing.image_processing_mural import MuralImageProcessor
from tests.support.tiny_rc3 import rc3_processor


def _in_english(processor_class: type) -> type:
    def call(self: Any, images: Any = None, text: Any = None, language: Any = None, **kwargs: Any) -> Any:
        if text is not None and language is None and "language" not in kwargs.get("text_kwargs", {}):
            language = "en"
        return processor_class.__call__(self, images=images, text=text, language=language, **kwargs)

    return type(processor_class.__name__, (processor_class,), {"__call__": call, "__module__": __name__})


class ProcessorSuite(ProcessorTesterMixin):
    method: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()  # of the settings that the class is made with

    @classmethod
    def setUpClass(cls) -> None:
        """Made by `_prepare`, with pytest's fixtures."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _prepare(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
        processor = rc3_processor() if cls.method == "rc3" else request.getfixturevalue(f"make_{cls.method}")()[1]
        cls.processor_class = _in_english(type(processor))
        cls.tmpdirname, cls.full_tmpdirname = str(tmp_path_factory.mktemp("processor")), None
        cls.values = {name: getattr(processor, name) for name in cls.names}
        components = [getattr(processor, name) for name in cls.processor_class.get_attributes()]
        cls.processor_class(*components, **copy.deepcopy(cls.values)).save_pretrained(cls.tmpdirname)
        yield
        shutil.rmtree(cls.tmpdirname)

    def prepare_processor_dict(self) -> dict[str, Any]:
        return copy.deepcopy(type(self).values)


NAMES = {
    "mural": (),
    "etcl": (),
    "mla": ("languages", "native_language", "max_text_length"),
    "mla_student": (),
    "smalr": ("vocabularies",),
    "liwe": ("characters", "word_length"),
    "rc3": ("languages", "language_tokens", "region_size", "max_regions"),
}
for method, names in NAMES.items():
    name = f"Test{method.title().replace('_', '')}Processor"
    made = {"method": method, "names": names, "__module__": __name__}
    globals()[name] = type(name, (ProcessorSuite, unittest.TestCase), made)


class MuralImages(ImageProcessingTester):
    def _get_image_processing_classes(self) -> dict[str, type]:
        return {"pil": MuralImageProcessor}

    def prepare_image_processor_dict(self) -> dict[str, Any]:
        return {"size": {"height": 20, "width": 20}, "crop_size": {"height": 18, "width": 18}, "do_normalize": True}

    def expected_output_image_shape(self, images: Any) -> tuple[int, int, int]:
        return self.num_channels, 18, 18


class TestMuralImageProcessor(ImageProcessingTestMixin, unittest.TestCase):
    image_processor_tester_class = MuralImages
