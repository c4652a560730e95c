// One program that is kube-proxy and CoreDNS, chosen by argv[0]: what Services need in the guest. CoreDNS
// has those plugins alone that a cluster's names take.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kube-proxy":
		os.Exit(cli.Run(app.NewProxyCommand()))
	case "coredns":
		dnsserver.Directives = []string{"bind", "ready", "errors", "cache", "kubernetes"}
		coremain.Run()
	default:
		fmt.Fprintf(os.Stderr, "%s: call this program kube-proxy or coredns\n", name)
		os.Exit(2)
	}
}
