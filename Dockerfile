# The command line of babelens in a container.
#
#   docker build -t babelens .                                        for a CPU
#   docker build -t babelens --build-arg TORCH=cu130 .                for an NVIDIA GPU (then: docker run --gpus all ...)
#   docker run --rm -v babelens-cache:/cache -v "$PWD:/work" babelens search MODEL "a red car" --language en --images photos
#
# Models and data sets that were fetched stay in the volume /cache; /work is where relative paths begin. Nothing runs as root: files
# in /work belong to the user 1000, or to whomever `docker run --user` names.

ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
COPY . /babelens
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /babelens

FROM python:${PYTHON}-slim
# What download.pytorch.org has torch for: cpu, cu130, ...
ARG TORCH=cpu
COPY constraints.txt /constraints.txt
# A layer of its own: torch is large, and changes least.
RUN pip install --no-cache-dir --constraint /constraints.txt --extra-index-url "https://download.pytorch.org/whl/${TORCH}" torch
COPY --from=build /wheels /wheels
RUN set -- /wheels/*.whl \
    && pip install --no-cache-dir --constraint /constraints.txt "$1[emoji,regions,segmenters,translation]" \
    && useradd --uid 1000 --create-home babelens \
    && install --directory --owner=babelens --mode=1777 /cache /work
ENV HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache PYTHONUNBUFFERED=1
VOLUME /cache
WORKDIR /work
USER 1000
ENTRYPOINT ["babelens"]
CMD ["--help"]
