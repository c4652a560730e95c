package main

import (
	"context"

	nri "github.com/containerd/nri/pkg/adaptation"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
)

func run(runtime *nri.Adaptation, pod *nri.PodSandbox) error {
	return runtime.RunPodSandbox(context.Background(), &nri.RunPodSandboxRequest{Pod: pod})
}

func stop(runtime *nri.Adaptation, pod *nri.PodSandbox) error {
	return runtime.StopPodSandbox(context.Background(), &nri.StopPodSandboxRequest{Pod: pod})
}

func remove(runtime *nri.Adaptation, pod *nri.PodSandbox, container *nri.Container) error {
	return runtime.RemoveContainer(context.Background(), &nri.RemoveContainerRequest{Pod: pod, Container: container})
}

// Has no container made without these plugins.
func required(plugins []string) []nri.Option {
	config := &validator.DefaultValidatorConfig{Enable: len(plugins) > 0, RequiredPlugins: plugins}
	return []nri.Option{nri.WithDefaultValidator(config)}
}
