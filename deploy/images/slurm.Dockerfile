# The images of Slurm's programs, targets `slurmd`, `slurmctld`, `slurmrestd` and `login`: docs/images.md. The
# base chooses Slurm's release: Debian forky has 26.05, trixie 24.11.

ARG BASE=docker.io/library/debian:forky-slim

FROM ${BASE} AS tools
ARG SNAPSHOT=
COPY deploy/images/debian-packages /usr/local/bin/
RUN --mount=type=secret,id=apt.conf debian-packages install ca-certificates
WORKDIR /build
# The users of Debian's packages and of docs/images.md: slurmrestd runs neither as root nor as SlurmUser.
RUN printf '%s\n' 'slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin' \
        'slurmrestd:x:64031:64031::/nonexistent:/usr/sbin/nologin' >passwd && \
    printf '%s\n' 'slurm:x:64030:' 'slurmrestd:x:64031:' >group

# What jobs run in, too: MORE are packages that they need besides.
FROM tools AS slurmd-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
ARG MORE=
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files bash coreutils curl \
        dash findutils gawk grep gzip hostname mount procps sed slurm-client slurm-wlm-basic-plugins \
        slurm-wlm-jwt-plugin slurmd tar util-linux $MORE && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/slurm /image/home /image/root /image/var/spool/slurmd
COPY deploy/slurm/slurm-extender-gate /image/usr/libexec/
RUN debian-packages finish /image

# As root: it makes cgroups, and starts each job as the job's user.
FROM scratch AS slurmd
COPY --from=slurmd-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=slurmd org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin
USER 0:0
ENTRYPOINT ["slurmd"]
CMD ["-D"]

FROM tools AS slurmctld-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files bash coreutils dash hostname \
        slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurmctld && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/slurm /image/var/lib/slurm /image/var/spool/slurmctld && \
    chown 64030:64030 /image/var/lib/slurm /image/var/spool/slurmctld
COPY deploy/slurm/slurm-extender-hook /image/usr/libexec/
RUN debian-packages finish /image

FROM scratch AS slurmctld
COPY --from=slurmctld-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=slurmctld org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin
USER 64030:64030
ENTRYPOINT ["slurmctld"]
CMD ["-D"]

FROM tools AS slurmrestd-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files slurm-wlm-basic-plugins \
        slurm-wlm-jwt-plugin slurmrestd && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/slurm && debian-packages finish /image

FROM scratch AS slurmrestd
COPY --from=slurmrestd-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=slurmrestd org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin SLURM_JWT=daemon
USER 64031:64031
ENTRYPOINT ["slurmrestd"]
CMD ["-a", "rest_auth/jwt", "0.0.0.0:6820"]

# Slurm's commands, and what people use beside them.
FROM tools AS login-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
ARG MORE=
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files bash coreutils curl \
        dash findutils gawk grep gzip hostname less procps sed slurm-client slurm-wlm-basic-plugins \
        slurm-wlm-jwt-plugin tar util-linux vim-tiny $MORE && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    echo 'login:x:65532:65532::/home/login:/bin/bash' >>/image/etc/passwd && \
    echo 'login:x:65532:' >>/image/etc/group && \
    mkdir -p /image/etc/slurm /image/home/login && chown 65532:65532 /image/home/login && \
    debian-packages finish /image

FROM scratch AS login
COPY --from=login-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=login org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin HOME=/home/login
WORKDIR /home/login
USER 65532:65532
CMD ["sleep", "infinity"]
