// The part of a container runtime that speaks NRI, by NRI's own code, as in containerd. The program creates no
// containers. Each line of the standard input is a question (a call to the plugins). Each line of the standard
// output is the answer: the plugins' changes, and the error.
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
	Resources json.RawMessage
}

type answer struct {
	Adjust  json.RawMessage `json:"adjust,omitempty"`
	Updates json.RawMessage `json:"updates,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// Pods and containers that the runtime reports to a plugin that connects, and the updates that the last such
// plugin requested when connecting. While the program answers a question, NRI lets no plugin connect.
var (
	pods       []*nri.PodSandbox
	containers []*nri.Container
	updates    []*nri.ContainerUpdate
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Adds as many containers as Pods. If a message is too long, NRI shortens both lists by the same factor. With
// few containers, each shortened message would have no container, and NRI would never end.
func addPods(count int) {
	for i := range count {
		annotations := map[string]string{"padding": fmt.Sprintf("%01000d", i)}
		pods = append(pods, &nri.PodSandbox{Id: strconv.Itoa(i), Name: "before", Annotations: annotations})
		containers = append(containers, &nri.Container{Id: "of " + strconv.Itoa(i), PodSandboxId: strconv.Itoa(i)})
	}
}

func synchronize(ctx context.Context, tell nri.SyncCB) (err error) {
	updates, err = tell(ctx, pods, containers)
	return err
}

func update(context.Context, []*nri.ContainerUpdate) ([]*nri.ContainerUpdate, error) {
	return nil, nil
}

func updatesTold(told []*nri.ContainerUpdate) answer {
	rows := make([]json.RawMessage, len(told))
	for i, update := range told {
		row, err := protojson.Marshal(update)
		must(err)
		rows[i] = row
	}
	list, err := json.Marshal(rows)
	must(err)
	return answer{Updates: list}
}

func ask(runtime *nri.Adaptation, asked question) (answer, error) {
	// Waits for a plugin that is connecting, so that the runtime asks this plugin, too.
	defer runtime.BlockPluginSync().Unblock()
	var pod nri.PodSandbox
	must(protojson.Unmarshal(asked.Pod, &pod))
	switch asked.Do {
	case "run":
		return answer{}, run(runtime, &pod)
	case "stop":
		return answer{}, stop(runtime, &pod)
	}
	var container nri.Container
	must(protojson.Unmarshal(asked.Container, &container))
	switch asked.Do {
	case "has":
		pods = append(pods, &pod)
		containers = append(containers, &container)
		return answer{}, nil
	case "synchronized":
		return updatesTold(updates), nil
	case "stop container":
		_, err := runtime.StopContainer(context.Background(), &nri.StopContainerRequest{Pod: &pod, Container: &container})
		return answer{}, err
	case "remove container":
		return answer{}, remove(runtime, &pod, &container)
	case "update":
		return change(runtime, &pod, &container, asked.Resources)
	}
	request := &nri.CreateContainerRequest{Pod: &pod, Container: &container}
	made, err := runtime.CreateContainer(context.Background(), request)
	if err != nil {
		return answer{}, err
	}
	adjust, err := protojson.Marshal(made.GetAdjust())
	return answer{Adjust: adjust}, err
}

func change(runtime *nri.Adaptation, pod *nri.PodSandbox, container *nri.Container, wanted []byte) (answer, error) {
	var resources nri.LinuxResources
	must(protojson.Unmarshal(wanted, &resources))
	request := &nri.UpdateContainerRequest{Pod: pod, Container: container, LinuxResources: &resources}
	made, err := runtime.UpdateContainer(context.Background(), request)
	if err != nil {
		return answer{}, err
	}
	return updatesTold(made.GetUpdate()), nil
}

func main() {
	socket := os.Args[1]
	count, err := strconv.Atoi(os.Args[2])
	must(err)
	addPods(count)
	options := append(required(os.Args[3:]), nri.WithSocketPath(socket), nri.WithPluginPath(socket+".none"),
		nri.WithPluginConfigPath(socket+".none"))
	runtime, err := nri.New("runtime of the tests", "1", synchronize, update, options...)
	must(err)
	must(runtime.Start())
	fmt.Println("{}")
	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		var asked question
		must(json.Unmarshal(questions.Bytes(), &asked))
		told, err := ask(runtime, asked)
		if err != nil {
			told.Error = err.Error()
		}
		line, err := json.Marshal(told)
		must(err)
		fmt.Println(string(line))
	}
}
