package main

import (
	"context"

	nri "github.com/containerd/nri/pkg/adaptation"
)

func run(runtime *nri.Adaptation, pod *nri.PodSandbox) error {
	return runtime.RunPodSandbox(context.Background(), &nri.StateChangeEvent{Pod: pod})
}

func stop(runtime *nri.Adaptation, pod *nri.PodSandbox) error {
	return runtime.StopPodSandbox(context.Background(), &nri.StateChangeEvent{Pod: pod})
}

func remove(runtime *nri.Adaptation, pod *nri.PodSandbox, container *nri.Container) error {
	return runtime.RemoveContainer(context.Background(), &nri.StateChangeEvent{Pod: pod, Container: container})
}

// NRI 0.8 has no validators.
func required([]string) []nri.Option {
	return nil
}
