# SPDX-License-Identifier: Apache-2.0
# docker build -t opscope . ; docker run --rm -v "$PWD:/work" opscope scan runs/x
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-deps -w /wheel /source

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheel,target=/wheel pip install --no-cache-dir /wheel/*.whl
WORKDIR /work
ENTRYPOINT ["opscope"]
