package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	kubernetesDir = root + "deploy/kubernetes"
	header        = "# Rendered from deploy/helm/dispatcher with deploy/kubernetes/values.yaml.\n"
)

var update = flag.Bool("update", false, "write the files that the chart renders or copies")

// copyFiles gives the chart the alert rules and the dashboard of deploy, because a chart cannot read files
// outside of its directory. A test of package deploy compares the copies.
func copyFiles(t *testing.T) {
	t.Helper()
	for name, source := range map[string]string{
		"alerts.yaml": "prometheus/alerts.yaml", "recording.yaml": "prometheus/recording.yaml",
		"dispatcher.json": "grafana/dispatcher.json",
	} {
		text, err := os.ReadFile(root + "deploy/" + source)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(chartDir, "files", name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKubernetes compares deploy/kubernetes with the rendered chart, and builds both kustomizations.
func TestKubernetes(t *testing.T) {
	if *update {
		copyFiles(t)
	}
	values, err := os.ReadFile(kubernetesDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := template(loadChart(t), release{name: "dispatcher", namespace: "dispatcher",
		service: "kustomize"}, string(values))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{"base/kustomization.yaml": true, "monitoring/kustomization.yaml": true}
	for name, text := range r.files {
		dir := "base"
		if name == "podmonitor.yaml" || name == "prometheusrule.yaml" {
			dir = "monitoring"
		}
		same(t, filepath.Join(kubernetesDir, dir, name), header+text)
		files[dir+"/"+name] = true
	}
	for dir, documents := range map[string]int{"base": len(r.files) - 2, "monitoring": len(r.files)} {
		entries, err := os.ReadDir(filepath.Join(kubernetesDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := dir + "/" + e.Name(); !files[name] {
				t.Errorf("deploy/kubernetes/%s is not rendered any more; remove it", name)
			}
		}
		built := build(t, filepath.Join(kubernetesDir, dir))
		built.check(t, "dispatcher")
		if len(built.files) != documents || *built.deployment.Spec.Replicas != 2 {
			t.Errorf("the kustomization deploy/kubernetes/%s has %d documents, want %d", dir,
				len(built.files), documents)
		}
	}
}

// build does what `kubectl kustomize DIR` does.
func build(t *testing.T, dir string) *rendered {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &rendered{files: map[string]string{}}
	for _, resource := range result.Resources() {
		text := resource.MustYaml()
		if err := r.add(text); err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		r.files[resource.CurId().String()] = text
	}
	return r
}

// same compares a file with what it must contain, or writes it with -update.
func same(t *testing.T, name, want string) {
	t.Helper()
	want = strings.TrimRight(want, "\n") + "\n"
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		t.Errorf("%s differs from what the chart makes (%v): run go test ./chart -update in deploy/check",
			name, err)
	}
}
