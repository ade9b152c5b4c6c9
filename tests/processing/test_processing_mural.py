from contracts import ProcessorContract


class TestMuralProcessor(ProcessorContract):
    factory = "make_mural"
