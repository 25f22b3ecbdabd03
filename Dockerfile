# syntax=docker/dockerfile:1
#
# The same commit gives the same files. For the same image, timestamps must be the commit's as well:
#
#   docker buildx build --tag coder-k8s \
#     --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" --build-arg REVISION="$(git rev-parse HEAD)" \
#     --output type=image,rewrite-timestamp=true .
#
# The base is pinned by version; give PYTHON a tag with a digest to pin it by content.
ARG PYTHON=3.13.13-slim-trixie

FROM python:${PYTHON} AS build
ARG SOURCE_DATE_EPOCH=0
ARG APP=/opt/coder-k8s
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore PYTHONHASHSEED=0
WORKDIR /src

COPY requirements/build.txt requirements/runtime.txt requirements/
RUN pip install --require-hashes --requirement requirements/build.txt \
    && python -m venv --without-pip "$APP" \
    && pip --python "$APP" install --require-hashes --no-deps --only-binary=:all: --no-compile \
       --requirement requirements/runtime.txt

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python "$APP" install --no-deps --no-index --no-compile dist/*.whl \
    && python -m compileall -q --invalidation-mode unchecked-hash "$APP" \
    && find "$APP" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

FROM python:${PYTHON}
ARG APP=/opt/coder-k8s
ARG REVISION=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="coder-k8s" \
      org.opencontainers.image.description="A Kubernetes operator for Coder" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}"

# Remove pip, and compile: the base image has no bytecode, and the file system is read-only at run time.
RUN pip uninstall --yes pip \
    && stdlib="$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && rm -rf "$stdlib/ensurepip" "$stdlib/idlelib" "$stdlib/turtledemo" \
    && python -m compileall -q --invalidation-mode unchecked-hash "$stdlib"

COPY --from=build ${APP} ${APP}
ENV PATH=${APP}/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["coder-k8s"]
CMD ["controller"]
