# kube-scheduler for the tests, where Kubernetes' own image cannot be pulled: the program that deploy/local
# built, in the build context `programs`, with the C library that it is linked with.

ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BASE} AS kube-scheduler-files
ARG SOURCE_DATE_EPOCH=0
COPY deploy/images/debian-packages /usr/local/bin/
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files libc6
ARG PROGRAM=kube-scheduler
COPY --from=programs ${PROGRAM} /image/usr/local/bin/kube-scheduler
RUN debian-packages finish /image

FROM scratch AS kube-scheduler
COPY --from=kube-scheduler-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=kube-scheduler org.opencontainers.image.version=$VERSION
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["kube-scheduler"]
