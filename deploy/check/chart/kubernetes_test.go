package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	kubernetesDir = root + "deploy/kubernetes"
	header        = "# Rendered from deploy/helm/dispatcher with deploy/kubernetes/values.yaml.\n"
)

var update = flag.Bool("update", false, "write the files that the chart renders")

// TestKubernetes compares deploy/kubernetes with the rendered chart, and builds the kustomization.
func TestKubernetes(t *testing.T) {
	values, err := os.ReadFile(kubernetesDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := template(loadChart(t), release{name: "dispatcher", namespace: "dispatcher",
		service: "kustomize"}, string(values))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(kubernetesDir, "base")
	for name, text := range r.files {
		same(t, filepath.Join(dir, name), header+text)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if r.files[e.Name()] == "" && e.Name() != "kustomization.yaml" {
			t.Errorf("deploy/kubernetes/base/%s is not rendered any more; remove it", e.Name())
		}
	}
	built := build(t, dir)
	built.check(t, "dispatcher")
	if len(built.files) != len(r.files) || *built.deployment.Spec.Replicas != 2 {
		t.Errorf("the kustomization has %d documents, want %d", len(built.files), len(r.files))
	}
}

// TestFiles checks that a packaged chart has the alert rules and the dashboard of deploy. In the directory of
// the chart they are symbolic links, because a chart cannot read files outside of it.
func TestFiles(t *testing.T) {
	archive, err := chartutil.Save(loadChart(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packaged, err := loader.LoadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for _, f := range packaged.Files {
		has[f.Name] = string(f.Data)
	}
	for name, source := range map[string]string{
		"files/alerts.yaml": "prometheus/alerts.yaml", "files/recording.yaml": "prometheus/recording.yaml",
		"files/dispatcher.json": "grafana/dispatcher.json",
	} {
		want, err := os.ReadFile(root + "deploy/" + source)
		if err != nil {
			t.Fatal(err)
		}
		if has[name] != string(want) {
			t.Errorf("%s of the packaged chart is not deploy/%s", name, source)
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
