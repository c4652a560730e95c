# The images of Slurm's programs (docs/reference/images.md). The targets are `slurmd`, `slurmctld`, `slurmrestd`, `login` and
# `sssd`. sssd lets the other programs know the users of a directory. The base determines Slurm's release: Debian forky has
# 26.05, trixie has 24.11. sssd has a separate base, because not every release of Debian has sssd.

ARG BASE=docker.io/library/debian:forky-slim
ARG SSSD_BASE=docker.io/library/debian:trixie-slim

FROM ${SSSD_BASE} AS sssd-unpacked
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
COPY deploy/images/debian-packages /usr/local/bin/
RUN --mount=type=secret,id=apt.conf debian-packages install ca-certificates
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files coreutils dash libnss-sss \
        libpam-sss sssd-common sssd-ldap && \
    mkdir -p /image/etc/directory /image/etc/directory-ca /image/etc/directory-client \
        /image/etc/directory-password /image/etc/sssd /image/var/lib/sss

# Files of sssd for the other images. First, the libraries with which programs know sssd's users: they need only libc.
# Second, the program with which sshd gets the users' keys. It comes with its own libraries and loader, because the other
# image may have other versions.
FROM sssd-unpacked AS sssd-client
RUN debian-packages client /image /client

FROM sssd-unpacked AS sssd-files
COPY deploy/login/start-sssd /image/usr/libexec/slurm-login/
RUN debian-packages finish /image

# sssd runs as root, but without any capability, because pam_sss and libnss_sss trust only root's sockets.
FROM scratch AS sssd
COPY --from=sssd-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=sssd org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin
USER 0:0
ENTRYPOINT ["/usr/libexec/slurm-login/start-sssd"]

FROM ${BASE} AS tools
ARG SNAPSHOT=
COPY deploy/images/debian-packages /usr/local/bin/
RUN --mount=type=secret,id=apt.conf debian-packages install ca-certificates
WORKDIR /build
# The users are the same as in Debian's packages, and in docs/reference/images.md. slurmrestd has a separate user, because
# it runs neither as root nor as SlurmUser.
RUN printf '%s\n' 'slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin' \
        'slurmrestd:x:64031:64031::/nonexistent:/usr/sbin/nologin' >passwd && \
    printf '%s\n' 'slurm:x:64030:' 'slurmrestd:x:64031:' >group

# Jobs also run in this image. MORE names further packages that jobs need.
FROM tools AS slurmd-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
ARG MORE=
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files bash coreutils curl \
        dash findutils gawk grep gzip hostname libnss-extrausers mount procps sed slurm-client \
        slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurmd tar util-linux $MORE && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/slurm /image/home /image/root /image/var/lib/extrausers /image/var/lib/sss \
        /image/var/spool/slurmd
COPY --from=sssd-client /client/usr/lib /image/usr/lib
COPY deploy/slurm/slurm-extender-gate /image/usr/libexec/
RUN debian-packages users /image && debian-packages finish /image

# slurmd runs as root, because it creates cgroups, and starts each job as the job's user.
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
        libnss-extrausers slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurmctld && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    mkdir -p /image/etc/slurm /image/var/lib/extrausers /image/var/lib/slurm /image/var/lib/sss \
        /image/var/spool/slurmctld && \
    chown 64030:64030 /image/var/lib/slurm /image/var/spool/slurmctld
COPY --from=sssd-client /client/usr/lib /image/usr/lib
COPY deploy/slurm/slurm-extender-hook /image/usr/libexec/
RUN debian-packages users /image && debian-packages finish /image

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
# slurmrestd must not call unshare(2): container runtimes reject the call, and a container is already isolated.
ENV PATH=/usr/sbin:/usr/bin SLURM_JWT=daemon SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv
USER 64031:64031
ENTRYPOINT ["slurmrestd"]
CMD ["-a", "rest_auth/jwt", "0.0.0.0:6820"]

# The image has sshd, Slurm's commands, and the usual tools of users. It also has sackd, which signs the messages of Slurm's
# commands. Passwords and keys of users come from sssd, which runs in a separate container.
FROM tools AS login-files
ARG SNAPSHOT=
ARG SOURCE_DATE_EPOCH=0
ARG MORE=
RUN --mount=type=secret,id=apt.conf debian-packages unpack /image base-files bash coreutils curl dash findutils \
        gawk grep gzip hostname less libc-bin libnss-extrausers libpam-modules ncurses-base openssh-client \
        openssh-server procps sackd sed slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin tar \
        util-linux vim-tiny $MORE && \
    cat passwd >>/image/etc/passwd && cat group >>/image/etc/group && \
    printf '%s\n' 'sshd:x:100:65534::/run/sshd:/usr/sbin/nologin' \
        'nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin' \
        'login:x:65532:65532::/nonexistent:/usr/sbin/nologin' >>/image/etc/passwd && \
    printf '%s\n' 'tty:x:5:' 'nogroup:x:65534:' 'login:x:65532:' >>/image/etc/group && \
    mkdir -p /image/etc/skel /image/etc/slurm /image/etc/slurm-keys /image/etc/slurm-login \
        /image/etc/slurm-login-host-keys /image/etc/slurm-login-user-keys /image/home \
        /image/run/slurm /image/var/lib/extrausers /image/var/lib/sss && touch /image/etc/motd
COPY --from=sssd-client /client /image
COPY deploy/login /image/usr/libexec/slurm-login
RUN mv /image/usr/libexec/slurm-login/pam.sshd /image/etc/pam.d/sshd && \
    printf '%s required pam_deny.so\n' auth account password session >/image/etc/pam.d/other && \
    rm /image/usr/libexec/slurm-login/start-sssd && \
    debian-packages users /image && debian-packages finish /image

# sshd runs as root, because it starts each session as the session's user. The hook that creates the host keys runs as the
# user 65532.
FROM scratch AS login
COPY --from=login-files /image /
ARG VERSION=
LABEL org.opencontainers.image.title=login org.opencontainers.image.version=$VERSION
ENV PATH=/usr/sbin:/usr/bin
USER 0:0
ENTRYPOINT ["/usr/libexec/slurm-login/start-sshd"]
