// One program that is every Kubernetes binary of the local cluster, chosen by argv[0]. Each of them is
// upstream's own command; linked together they share most of their code, so that one build of a few
// minutes and one file of a third of the size replace five.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// runKwok is kwok's own main: its command expects flags that its main parses first.
func runKwok() error {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := kwok.NewCommand(ctx)
	command.Version = "" // the Kubernetes commands have registered a global --version that is not a bool
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcd.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	case "kwok":
		if err := runKwok(); err != nil {
			fmt.Fprintln(os.Stderr, "kwok:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "%s: call this program by the name of a Kubernetes binary\n", name)
		os.Exit(2)
	}
}
