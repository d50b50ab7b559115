package compose

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// TestPrometheus gives promtool the files as Prometheus sees them in its container, and checks that every
// dispatcher is a target.
func TestPrometheus(t *testing.T) {
	project, etc := load(t), t.TempDir()
	var config string
	for _, v := range project.Services["prometheus"].Volumes {
		if v.Type != types.VolumeTypeBind || path.Dir(v.Target) != "/etc/prometheus" {
			continue
		}
		text, err := os.ReadFile(v.Source)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(etc, path.Base(v.Target)), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if v.Target == "/etc/prometheus/prometheus.yml" { // where the image's command looks
			config = string(text)
		}
	}
	if out, err := exec.Command("promtool", "check", "config", filepath.Join(etc, "prometheus.yml")).
		CombinedOutput(); err != nil || strings.Count(string(out), "rules found") != 2 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	var read struct {
		Scrape []struct {
			Job    string `json:"job_name"`
			Static []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(config), &read); err != nil {
		t.Fatal(err)
	}
	var targets, want []string
	for _, s := range read.Scrape {
		if !strings.HasPrefix(s.Job, "dispatcher") { // the alert rules select such jobs
			t.Errorf("a job has the name %s", s.Job)
		}
		for _, static := range s.Static {
			targets = append(targets, static.Targets...)
		}
	}
	for name, s := range project.Services {
		if isDispatcher(s) {
			want = append(want, name+":8081")
		}
	}
	slices.Sort(targets)
	slices.Sort(want)
	if !slices.Equal(targets, want) {
		t.Errorf("Prometheus reads %q, want %q", targets, want)
	}
}

// TestGrafana checks that Grafana finds its dashboard and its data.
func TestGrafana(t *testing.T) {
	project := load(t)
	mounts := map[string]string{}
	for _, v := range project.Services["grafana"].Volumes {
		mounts[v.Target] = v.Source
	}
	provisioning := mounts["/etc/grafana/provisioning"]
	var dashboards struct {
		Providers []struct {
			Options struct {
				Path string `json:"path"`
			} `json:"options"`
		} `json:"providers"`
	}
	readYAML(t, filepath.Join(provisioning, "dashboards", "dispatcher.yaml"), &dashboards)
	for _, p := range dashboards.Providers {
		if mounts[p.Options.Path+"/dispatcher.json"] == "" {
			t.Errorf("Grafana looks for dashboards in %s, and nothing is mounted there", p.Options.Path)
		}
	}
	var sources struct {
		Datasources []struct {
			URL string `json:"url"`
		} `json:"datasources"`
	}
	readYAML(t, filepath.Join(provisioning, "datasources", "prometheus.yaml"), &sources)
	if len(dashboards.Providers) != 1 || len(sources.Datasources) != 1 ||
		sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("providers %v, data sources %v", dashboards, sources)
	}
	home := project.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if home == nil || mounts[*home] == "" {
		t.Error("the home dashboard is not mounted")
	}
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestScripts runs shellcheck on the scripts, with the shell of their images: sh.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob(dir + "/*.sh")
	if err != nil || len(scripts) != 2 {
		t.Fatalf("the scripts are %q, %v", scripts, err)
	}
	args := append([]string{"--shell=sh", "--enable=all", "--exclude=SC2250,SC2310,SC2312"}, scripts...)
	if out, err := exec.Command("shellcheck", args...).CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
