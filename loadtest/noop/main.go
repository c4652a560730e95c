// A kube-scheduler extender without decisions: /scheduler/filter accepts every Node, and /scheduler/bind
// posts the requested Binding. Its cost is the minimum of any extender that binds, and so the reference for
// slurm-extender. The program must be fast.
//
// deploy.local starts this program in place of the extender, with the same settings.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// filterArgs is the part of ExtenderArgs that filter returns. The names stay unparsed.
type filterArgs struct {
	NodeNames json.RawMessage
}

// bindArgs is ExtenderBindingArgs.
type bindArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

type objectMeta struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

type target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

type binding struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   objectMeta `json:"metadata"`
	Target     target     `json:"target"`
}

// apiServer calls kube-apiserver as the user of a kubeconfig.
type apiServer struct {
	url, token string
	client     *http.Client
}

func (s *apiServer) bind(args bindArgs) error {
	body, err := json.Marshal(binding{
		APIVersion: "v1",
		Kind:       "Binding",
		Metadata:   objectMeta{args.PodName, args.PodNamespace, args.PodUID},
		Target:     target{"v1", "Node", args.Node},
	})
	if err != nil {
		return err
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", s.url, args.PodNamespace, args.PodName)
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body) // up to the end, so that the connection can be used again
	if err == nil && response.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}

// connect reads a kubeconfig of deploy.local, with one cluster and one user with a token.
func connect(kubeconfig string) (*apiServer, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if key, value, found := strings.Cut(strings.TrimSpace(line), ": "); found {
			given[key] = value
		}
	}
	certificate, err := os.ReadFile(given["certificate-authority"])
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(certificate) {
		return nil, fmt.Errorf("%s holds no certificate", given["certificate-authority"])
	}
	// Uses HTTP/1.1, with enough open connections for all concurrent bindings of a burst.
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: authorities},
		MaxIdleConnsPerHost: 128,
		IdleConnTimeout:     10 * time.Minute,
	}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	return &apiServer{given["server"], given["token"], client}, nil
}

// reply sends header and body together, because the length is known and nothing is flushed in between.
func reply(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

func read(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func filter(w http.ResponseWriter, r *http.Request) {
	var args filterArgs
	if err := read(r, &args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, append(append([]byte(`{"NodeNames":`), args.NodeNames...), '}'))
}

func (s *apiServer) serveBind(w http.ResponseWriter, r *http.Request) {
	var args bindArgs
	if err := read(r, &args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	why := ""
	if err := s.bind(args); err != nil {
		why = err.Error()
	}
	body, _ := json.Marshal(map[string]string{"Error": why})
	reply(w, body)
}

func listen(port string, handler http.Handler) {
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("SLURM_EXTENDER_"+port+"_PORT"), handler))
}

func main() {
	server, err := connect(os.Getenv("SLURM_EXTENDER_KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	verbs := http.NewServeMux()
	verbs.HandleFunc("/scheduler/filter", filter)
	verbs.HandleFunc("/scheduler/bind", server.serveBind)
	probes := http.NewServeMux()
	probes.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	go listen("HEALTH", probes)
	listen("SCHEDULER", verbs)
}
