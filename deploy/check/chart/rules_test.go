package chart

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const opsPort = 8081

// requests is how long requests of the API have to end after shutdown_delay.
const requests = 10 * time.Second

// check reports each rule that the objects break.
func (r *rendered) check(t *testing.T, namespace string) {
	t.Helper()
	if r.deployment == nil || r.service == nil {
		t.Fatal("no Deployment or no Service")
	}
	pod := r.deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatal("not one container")
	}
	container := pod.Containers[0]
	r.checkNames(t, namespace)
	r.checkSelectors(t)
	checkSecurity(t, pod, container)
	checkProbes(t, container)
	r.checkDrain(t, pod, container)
	r.checkVolumes(t, pod, container)
	r.checkReplicas(t, container)
	r.checkPorts(t, container)
	if r.network != nil {
		r.checkNetwork(t)
	}
	if r.account != nil && (r.account.AutomountServiceAccountToken == nil ||
		*r.account.AutomountServiceAccountToken) {
		t.Error("the service account has a token")
	}
}

// objects are the metadata of everything that was rendered.
func (r *rendered) objects() (all []meta.ObjectMeta) {
	all = append(all, r.deployment.ObjectMeta, r.service.ObjectMeta)
	if r.account != nil {
		all = append(all, r.account.ObjectMeta)
	}
	if r.claim != nil {
		all = append(all, r.claim.ObjectMeta)
	}
	if r.dashboard != nil {
		all = append(all, r.dashboard.ObjectMeta)
	}
	if r.budget != nil {
		all = append(all, r.budget.ObjectMeta)
	}
	if r.ingress != nil {
		all = append(all, r.ingress.ObjectMeta)
	}
	if r.network != nil {
		all = append(all, r.network.ObjectMeta)
	}
	if r.monitor != nil {
		all = append(all, r.monitor.ObjectMeta)
	}
	if r.rules != nil {
		all = append(all, r.rules.ObjectMeta)
	}
	return all
}

func (r *rendered) checkNames(t *testing.T, namespace string) {
	t.Helper()
	if len(r.objects()) != len(r.files) {
		t.Errorf("%d documents, but rules for %d", len(r.files), len(r.objects()))
	}
	for _, o := range r.objects() {
		if len(o.Name) > 63 || o.Namespace != namespace || o.Labels["app.kubernetes.io/name"] == "" {
			t.Errorf("name %q, namespace %q, labels %v", o.Name, o.Namespace, o.Labels)
		}
		for key, value := range o.Labels {
			if len(value) > 63 {
				t.Errorf("%s: the label %s has %d characters", o.Name, key, len(value))
			}
		}
	}
}

// checkSelectors checks that each selector matches the pods, and that a new version of the chart does not
// change it.
func (r *rendered) checkSelectors(t *testing.T) {
	t.Helper()
	labels := r.deployment.Spec.Template.Labels
	selectors := []map[string]string{r.deployment.Spec.Selector.MatchLabels, r.service.Spec.Selector}
	if r.budget != nil {
		selectors = append(selectors, r.budget.Spec.Selector.MatchLabels)
	}
	if r.network != nil {
		selectors = append(selectors, r.network.Spec.PodSelector.MatchLabels)
	}
	if r.monitor != nil {
		selectors = append(selectors, r.monitor.Spec.Selector.MatchLabels)
	}
	for _, c := range r.deployment.Spec.Template.Spec.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			t.Fatalf("the constraint of %s counts no pods", c.TopologyKey)
		}
		selectors = append(selectors, c.LabelSelector.MatchLabels)
	}
	for _, s := range selectors {
		if len(s) == 0 || s["app.kubernetes.io/version"] != "" || s["helm.sh/chart"] != "" {
			t.Errorf("the selector %v matches all pods or changes with the version", s)
		}
		for key, value := range s {
			if labels[key] != value {
				t.Errorf("the selector %v does not match the pods' labels %v", s, labels)
			}
		}
	}
}

// checkSecurity checks what the "restricted" Pod Security Standard demands, and a read-only root.
func checkSecurity(t *testing.T, pod core.PodSpec, container core.Container) {
	t.Helper()
	p, c := pod.SecurityContext, container.SecurityContext
	switch {
	case p.RunAsNonRoot == nil || !*p.RunAsNonRoot:
		t.Error("the pod may run as root")
	case slices.ContainsFunc([]*int64{p.RunAsUser, p.RunAsGroup, p.FSGroup}, func(id *int64) bool {
		return id == nil && p.RunAsUser != nil || id != nil && *id != 65532
	}):
		t.Error("the pod runs neither as 65532 nor as the cluster says")
	case p.SeccompProfile == nil || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		t.Error("no seccomp profile")
	case c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Privileged != nil:
		t.Error("privileges can grow")
	case c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem:
		t.Error("the root can be written")
	case len(c.Capabilities.Add) > 0 || !slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"}):
		t.Error("capabilities are not dropped")
	case pod.HostNetwork || pod.HostPID || pod.HostIPC || container.Ports[0].HostPort != 0:
		t.Error("the pod uses the node's namespaces")
	case pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken:
		t.Error("the pod has a token")
	case pod.EnableServiceLinks == nil || *pod.EnableServiceLinks:
		t.Error("variables of services may look like settings")
	case container.Resources.Requests.Cpu().IsZero() || container.Resources.Limits.Memory().IsZero():
		t.Error("no request of CPU or no limit of memory")
	case strings.HasSuffix(container.Image, ":latest") || !strings.ContainsAny(container.Image, ":@"):
		t.Errorf("the image %s can change", container.Image)
	}
}

func checkProbes(t *testing.T, container core.Container) {
	t.Helper()
	for name, probe := range map[string]*core.Probe{
		"/healthz startup": container.StartupProbe, "/healthz liveness": container.LivenessProbe,
		"/readyz readiness": container.ReadinessProbe,
	} {
		path, _, _ := strings.Cut(name, " ")
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path ||
			probe.HTTPGet.Port != intstr.FromString("ops") {
			t.Errorf("%s does not ask the ops port for its path", name)
		}
	}
	// A migration runs before the ports open.
	if p := container.StartupProbe; p.PeriodSeconds*p.FailureThreshold < 600 {
		t.Errorf("a start may take only %d s", p.PeriodSeconds*p.FailureThreshold)
	}
}

// checkDrain checks that Kubernetes waits longer than the program needs to end.
func (r *rendered) checkDrain(t *testing.T, pod core.PodSpec, container core.Container) {
	t.Helper()
	var drain time.Duration
	for _, name := range []string{"DISPATCHER_SHUTDOWN_DELAY", "DISPATCHER_DRAIN_TIMEOUT"} {
		d, err := time.ParseDuration(environment(container)[name])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		drain += d
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if grace < drain+requests+5*time.Second {
		t.Errorf("Kubernetes waits %s; the program may need %s", grace, drain+requests)
	}
	if container.Lifecycle != nil {
		t.Error("the image has no shell for hooks")
	}
}

func environment(container core.Container) map[string]string {
	all := map[string]string{}
	for _, v := range container.Env {
		all[v.Name] = v.Value
	}
	return all
}

// checkVolumes checks that each variable is a setting, that each file which a variable names comes from the
// Secret, and that SQLite has a claim.
func (r *rendered) checkVolumes(t *testing.T, pod core.PodSpec, container core.Container) {
	t.Helper()
	known, files := settingKeys(t), map[string]bool{}
	volumes := map[string]core.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
		if v.Secret != nil {
			for _, item := range v.Secret.Items {
				files["/keys/"+item.Path] = true
			}
			if mode := v.Secret.DefaultMode; mode == nil || *mode != 0o440 {
				t.Errorf("the keys have mode %o", *mode)
			}
		}
	}
	for _, m := range container.VolumeMounts {
		if _, ok := volumes[m.Name]; !ok {
			t.Errorf("the volume %s does not exist", m.Name)
		}
		delete(volumes, m.Name)
	}
	if len(volumes) > 0 {
		t.Errorf("volumes that are not mounted: %v", slices.Collect(maps.Keys(volumes)))
	}
	env := environment(container)
	if len(env) != len(container.Env) {
		t.Error("a variable occurs twice")
	}
	for name, value := range env {
		key, ours := strings.CutPrefix(name, "DISPATCHER_")
		key, isFile := strings.CutSuffix(strings.ToLower(key), "_file")
		if ours && (!known[key] || value == "") {
			t.Errorf("%s is no setting, or empty", name)
		}
		if isFile && !files[value] {
			t.Errorf("%s is %q, which the Secret does not have", name, value)
		}
		delete(files, value)
	}
	if len(files) > 0 || env["DISPATCHER_ADMIN_KEY_FILE"] == "" || env["DISPATCHER_MASTER_KEY_FILE"] == "" {
		t.Errorf("the environment %v does not use the files %v", env, files)
	}
	claimed := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.PersistentVolumeClaim != nil && (r.claim == nil ||
			v.PersistentVolumeClaim.ClaimName == r.claim.Name)
	})
	if claimed == r.postgres() {
		t.Errorf("PostgreSQL: %t, a claim for SQLite: %t", r.postgres(), claimed)
	}
}

func (r *rendered) has(setting string) bool {
	env := environment(r.deployment.Spec.Template.Spec.Containers[0])
	return env["DISPATCHER_"+setting] != "" || env["DISPATCHER_"+setting+"_FILE"] != ""
}

func (r *rendered) postgres() bool { return r.has("DATABASE_URL") }

// checkReplicas checks that two processes never use SQLite or the embedded index at once, and that an upgrade
// of several processes takes none away before its successor is ready.
func (r *rendered) checkReplicas(t *testing.T, container core.Container) {
	t.Helper()
	replicas, strategy := *r.deployment.Spec.Replicas, r.deployment.Spec.Strategy
	if !r.postgres() || !r.has("REDIS_URL") {
		if replicas > 1 || strategy.Type != apps.RecreateDeploymentStrategyType {
			t.Errorf("%d processes, %s, without PostgreSQL and Redis", replicas, strategy.Type)
		}
	} else if u := strategy.RollingUpdate; u == nil || u.MaxUnavailable.String() != "0" ||
		u.MaxSurge.String() == "0" {
		t.Errorf("the strategy is %+v", strategy)
	}
	if (replicas > 1) != (r.budget != nil) {
		t.Errorf("%d replicas, a PodDisruptionBudget: %t", replicas, r.budget != nil)
	}
	if r.budget != nil && (r.budget.Spec.MinAvailable != nil || r.budget.Spec.MaxUnavailable == nil) {
		t.Error("the PodDisruptionBudget may keep every node from being drained")
	}
	if len(r.deployment.Spec.Template.Spec.TopologySpreadConstraints) == 0 {
		t.Error("the pods are not spread")
	}
}

// checkPorts checks that neither the Service nor the Ingress leads to the ops port, and that Prometheus finds
// it.
func (r *rendered) checkPorts(t *testing.T, container core.Container) {
	t.Helper()
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	env := environment(container)
	if env["DISPATCHER_LISTEN"] != ":8080" || ports["http"] != 8080 ||
		env["DISPATCHER_OPS_LISTEN"] != ":8081" || ports["ops"] != opsPort || len(ports) != 2 {
		t.Errorf("the ports %v are not those of the settings", ports)
	}
	for _, p := range r.service.Spec.Ports {
		if p.TargetPort != intstr.FromString("http") {
			t.Errorf("the Service leads to %s", p.TargetPort.String())
		}
	}
	if r.ingress != nil {
		for _, rule := range r.ingress.Spec.Rules {
			for _, path := range rule.HTTP.Paths {
				b := path.Backend.Service
				if b.Name != r.service.Name || b.Port.Name != "http" {
					t.Errorf("the Ingress leads to %+v", b)
				}
			}
		}
		if len(r.ingress.Spec.Rules) == 0 || r.ingress.Spec.DefaultBackend != nil {
			t.Error("the Ingress has no rule, or answers for other hosts")
		}
	}
	if r.monitor != nil {
		e := r.monitor.Spec.PodMetricsEndpoints
		if len(e) != 1 || e[0].Port == nil || *e[0].Port != "ops" || e[0].Path != "/metrics" ||
			len(e[0].RelabelConfigs) != 1 {
			t.Fatalf("Prometheus reads %+v", e)
		}
		// Two releases with the same name in different namespaces are two jobs.
		job := e[0].RelabelConfigs[0]
		if job.TargetLabel != "job" || *job.Replacement != "dispatcher/$1/"+r.deployment.Name ||
			!slices.Equal(job.SourceLabels, []monitoring.LabelName{"__meta_kubernetes_namespace"}) {
			t.Errorf("the job is %+v", job)
		}
	}
}

// inside are addresses that receivers must not have.
var inside = []string{"10.0.0.1", "172.20.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "127.0.0.1",
	"fd00::1", "fe80::1", "::1"}

// checkNetwork checks that the ops port is open to the namespace of Prometheus alone, and that only name
// servers, storage and the public internet can be reached.
func (r *rendered) checkNetwork(t *testing.T) {
	t.Helper()
	spec := r.network.Spec
	if len(spec.PolicyTypes) != 2 {
		t.Errorf("the policy is for %v", spec.PolicyTypes)
	}
	for _, rule := range spec.Ingress {
		if len(rule.Ports) != 1 {
			t.Fatalf("a rule has the ports %v", rule.Ports)
		}
		ops := rule.Ports[0].Port.String() == "ops"
		if ops && (len(rule.From) != 1 || rule.From[0].NamespaceSelector == nil ||
			rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "") {
			t.Errorf("the ops port is open to %v", rule.From)
		}
		if !ops && rule.Ports[0].Port.String() != "http" {
			t.Errorf("port %s is open", rule.Ports[0].Port.String())
		}
	}
	for _, rule := range spec.Egress {
		for _, peer := range rule.To {
			if peer.IPBlock == nil || peer.IPBlock.CIDR == "10.20.0.0/16" { // extraEgress of all.yaml
				continue
			}
			for _, address := range inside {
				if reaches(t, peer.IPBlock, address) {
					t.Errorf("%s can be reached through %s", address, peer.IPBlock.CIDR)
				}
			}
		}
		if len(rule.Ports) == 0 {
			t.Errorf("every port of %v can be reached, by UDP too", rule.To)
		}
		for _, p := range rule.Ports {
			if len(rule.To) == 0 && (p.EndPort != nil || p.Port.IntVal == 443 || p.Port.IntVal == 80) {
				t.Errorf("port %s of every address can be reached", p.Port.String())
			}
		}
	}
	public := []string{"203.0.113.7", "2001:db8::1"}
	for _, address := range public {
		if !slices.ContainsFunc(spec.Egress, func(rule networking.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(rule.To, func(p networking.NetworkPolicyPeer) bool {
				return p.IPBlock != nil && reaches(t, p.IPBlock, address)
			})
		}) {
			t.Errorf("receivers such as %s cannot be reached", address)
		}
	}
}

// reaches reports whether a block has an address.
func reaches(t *testing.T, block *networking.IPBlock, address string) bool {
	t.Helper()
	has := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			t.Fatal(err)
		}
		return prefix.Contains(netip.MustParseAddr(address))
	}
	return has(block.CIDR) && !slices.ContainsFunc(block.Except, has)
}
