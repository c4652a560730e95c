// The part of a container runtime that speaks NRI: NRI's own, as containerd has it. It makes no containers.
// Each line of its standard input is a question, and each of its output what a plugin has made of it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	nri "github.com/containerd/nri/pkg/adaptation"
	"google.golang.org/protobuf/encoding/protojson"
)

type question struct {
	Do        string
	Pod       json.RawMessage
	Container json.RawMessage
}

type answer struct {
	Adjust json.RawMessage `json:"adjust,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Tells a plugin of so many Pods when it connects.
func synchronizer(count int) nri.SyncFn {
	pods := make([]*nri.PodSandbox, count)
	for i := range pods {
		annotations := map[string]string{"padding": fmt.Sprintf("%01000d", i)}
		pods[i] = &nri.PodSandbox{Id: strconv.Itoa(i), Name: "before", Annotations: annotations}
	}
	return func(ctx context.Context, tell nri.SyncCB) error {
		_, err := tell(ctx, pods, nil)
		return err
	}
}

func update(context.Context, []*nri.ContainerUpdate) ([]*nri.ContainerUpdate, error) {
	return nil, nil
}

func ask(runtime *nri.Adaptation, asked question) (json.RawMessage, error) {
	defer runtime.BlockPluginSync().Unblock() // a plugin that connects just now is asked, too
	var pod nri.PodSandbox
	must(protojson.Unmarshal(asked.Pod, &pod))
	switch asked.Do {
	case "run":
		return nil, run(runtime, &pod)
	case "stop":
		return nil, stop(runtime, &pod)
	}
	var container nri.Container
	must(protojson.Unmarshal(asked.Container, &container))
	request := &nri.CreateContainerRequest{Pod: &pod, Container: &container}
	made, err := runtime.CreateContainer(context.Background(), request)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(made.GetAdjust())
}

func main() {
	socket, pods := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(pods)
	must(err)
	options := append(required(os.Args[3:]), nri.WithSocketPath(socket), nri.WithPluginPath(socket+".none"),
		nri.WithPluginConfigPath(socket+".none"))
	runtime, err := nri.New("runtime of the tests", "1", synchronizer(count), update, options...)
	must(err)
	must(runtime.Start())
	fmt.Println("{}")
	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		var asked question
		must(json.Unmarshal(questions.Bytes(), &asked))
		adjust, err := ask(runtime, asked)
		told := answer{Adjust: adjust}
		if err != nil {
			told.Error = err.Error()
		}
		line, err := json.Marshal(told)
		must(err)
		fmt.Println(string(line))
	}
}
