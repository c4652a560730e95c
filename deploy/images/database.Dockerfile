# The images for accounting (docs/reference/images.md). The targets are `slurmdbd` and `mariadb`. The Debian release of the
# base determines Slurm's release, as in slurm.Dockerfile.

ARG BASE=docker.io/library/debian:forky-slim

FROM ${BASE} AS tools
ARG SNAPSHOT=
COPY deploy/images/debian-packages deploy/images/debian-files /usr/local/bin/
RUN --mount=type=secret,id=apt.conf debian-packages install ca-certificates
WORKDIR /build
# docs/reference/images.md lists these users.
RUN printf '%s\n' 'slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin' \
        'mysql:x:64032:64032::/nonexistent:/usr/sbin/nologin' >passwd && \
    printf '%s\n' 'slurm:x:64030:' 'mysql:x:64032:' >group

# libmariadb comes from another suite: with libmariadb 3.4.10 of trixie and forky, slurmdbd gets "error 5027" for each answer
# (November 2026).
FROM tools AS slurmdbd-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
ARG LIBMARIADB=bookworm
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files coreutils dash hostname \
        slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin slurmdbd && \
    debian-files /image "libmariadb3/$LIBMARIADB" './usr/lib/*/libmariadb.so.3' && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/slurm && debian-packages finish /image

FROM scratch AS slurmdbd
COPY --from=slurmdbd-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=slurmdbd org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin
USER 64030:64030
ENTRYPOINT ["slurmdbd"]
CMD ["-D"]

FROM tools AS mariadb-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files coreutils dash grep gzip \
        hostname mariadb-client-core mariadb-server-core sed && \
    debian-files /image mariadb-client ./usr/bin/mariadb-dump && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/mysql /image/run/mysqld /image/var/lib/mysql && \
    chown 64032:64032 /image/run/mysqld /image/var/lib/mysql && \
    rm -f /image/usr/share/mariadb/mariadb_test_data*
COPY deploy/images/mariadb-start deploy/images/database-dump deploy/images/database-restore /image/usr/bin/
RUN debian-packages finish /image

FROM scratch AS mariadb
COPY --from=mariadb-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=mariadb org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin
USER 64032:64032
ENTRYPOINT ["mariadb-start"]
