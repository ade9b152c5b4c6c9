from contracts import DualEncoderContract, PublishingContract, image_text_batch, translation_batch


class TestMural(DualEncoderContract, PublishingContract):
    factory = "make_mural"

    def training_batches(self, processor):
        return {"image_text": image_text_batch(processor), "text_text": translation_batch(processor)}
