# The image of kube-scheduler for tests on machines that cannot pull Kubernetes' own image. The program comes from the build
# context `programs`: deploy/local has built it. The image also has the C library to which the program is linked.

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
