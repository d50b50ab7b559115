package compose

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
)

const dir = program.Root + "deploy/compose"

// load reads compose.yaml as `docker compose up` does, with an empty environment. A service, a dependency, a
// network or a volume that does not exist is an error.
func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")},
		cli.WithResolvedPaths(true), cli.WithConsistency(true), cli.WithNormalization(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// isDispatcher reports whether a service is a dispatcher, and not the same image with another command.
func isDispatcher(s types.ServiceConfig) bool {
	return s.Image == "dispatcher:dev" && len(s.Command) == 0
}

func TestServicesAreHardened(t *testing.T) {
	exact := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?(-[a-z]+)?$`)
	builds := 0
	for name, s := range load(t).Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged ||
			!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s has more rights than it needs", name)
		}
		if s.Logging == nil || s.Logging.Options["max-size"] == "" {
			t.Errorf("the log of %s has no bound", name)
		}
		// The services that do not build our image use the one that is built, and never pull it.
		own := s.Image == "dispatcher:dev" && s.PullPolicy == types.PullPolicyNever
		if s.Build == nil && !own && !exact.MatchString(s.Image) {
			t.Errorf("%s: the image %s has no exact tag", name, s.Image)
		}
		if s.Build != nil {
			builds++
		}
		if s.Build != nil && (s.Image != "dispatcher:dev" || !sameFile(t, s.Build.Context, program.Root)) {
			t.Errorf("%s builds %s from %s", name, s.Image, s.Build.Context)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" || p.Target == 8081 {
				t.Errorf("%s publishes port %d on %q", name, p.Target, p.HostIP)
			}
		}
		if _, storage := s.Networks["storage"]; storage && len(s.Ports) > 0 && !isDispatcher(s) {
			t.Errorf("%s publishes a port of the storage network", name)
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind && (!v.ReadOnly || !exists(v.Source)) {
				t.Errorf("%s mounts %s: read-only: %t", name, v.Source, v.ReadOnly)
			}
		}
	}
	if builds != 1 {
		t.Errorf("%d services build the image; builds of one tag in parallel can fail", builds)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	one, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(one, other)
}

// TestHealth checks that each server has a health check, and that services wait for those that they need.
func TestHealth(t *testing.T) {
	project := load(t)
	noServer := []string{"keys", "sender"}
	for name, s := range project.Services {
		h := s.HealthCheck
		switch {
		case slices.Contains(noServer, name):
		case name == "receiver": // the image's check asks a port that it does not have
			if h == nil || !h.Disable {
				t.Error("the receiver has the health check of the image")
			}
		case h == nil || len(h.Test) < 2 || h.Test[0] != "CMD" || h.Interval == nil || h.Timeout == nil:
			t.Errorf("%s has no complete health check", name)
		}
		for needed, d := range s.DependsOn {
			other := project.Services[needed]
			if d.Condition == types.ServiceConditionHealthy && (other.HealthCheck == nil ||
				other.HealthCheck.Disable) || d.Condition == types.ServiceConditionStarted &&
				other.HealthCheck != nil && !other.HealthCheck.Disable ||
				d.Condition == types.ServiceConditionCompletedSuccessfully && other.Restart != "no" {
				t.Errorf("%s waits for %s with the condition %s", name, needed, d.Condition)
			}
		}
	}
}

// TestDispatchers checks the settings of the two dispatchers.
func TestDispatchers(t *testing.T) {
	project := load(t)
	source, err := os.ReadFile(program.Root + "cmd/dispatcher/internal/config/settings.go")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for name, s := range project.Services {
		if !isDispatcher(s) {
			continue
		}
		count++
		for variable, value := range s.Environment {
			key, isFile := strings.CutSuffix(strings.TrimPrefix(variable, "DISPATCHER_"), "_FILE")
			key = strings.ToLower(key)
			if !strings.Contains(string(source), "`key:\""+key+"\"") || value == nil || *value == "" {
				t.Errorf("%s: %s is no setting, or empty", name, variable)
			}
			secret := key == "admin_key" || key == "master_key" || key == "database_url"
			if secret != isFile {
				t.Errorf("%s: %s must be in a file: %t", name, variable, secret)
			}
			if isFile && !slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
				return v.ReadOnly && v.Target == filepath.Dir(*value)
			}) {
				t.Errorf("%s: no volume has %s", name, *value)
			}
		}
		drain := 10*time.Second + 25*time.Second // requests, and the default of drain_timeout
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= drain {
			t.Errorf("%s may be killed while it drains", name)
		}
		for needed, condition := range map[string]string{
			"postgres": types.ServiceConditionHealthy, "redis": types.ServiceConditionHealthy,
			"keys": types.ServiceConditionCompletedSuccessfully,
		} {
			if s.DependsOn[needed].Condition != condition {
				t.Errorf("%s does not wait for %s", name, needed)
			}
		}
	}
	if count != 2 {
		t.Errorf("%d dispatchers", count)
	}
	if !project.Networks["storage"].Internal {
		t.Error("the storage network leads out")
	}
	for _, name := range []string{"postgres", "redis"} {
		if n := project.Services[name].Networks; len(n) != 1 {
			t.Errorf("%s is in the networks %v", name, n)
		}
	}
}
