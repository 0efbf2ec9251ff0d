package chart

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kube-node-ready/kube-node-ready/internal/remediation"
	"github.com/kube-node-ready/kube-node-ready/internal/workerpod"
	"github.com/kube-node-ready/kube-node-ready/test/cluster"
)

// acting is an installation with the admission policies whose actions are a condition, a Job and a Pod.
const acting = `
admissionPolicy: {enabled: true}
controller:
  replicas: 0
  image: {tag: local}
  config:
    nodeManagement:
      deleteFailedNodes: true
      remediation:
        actions:
          - condition: {type: example.com/Repair}
          - object:
              template:
                apiVersion: batch/v1
                kind: Job
                metadata: {namespace: repair, labels: {why: "{{reason}}"}}
                spec:
                  backoffLimit: 0
                  template:
                    spec:
                      nodeName: "{{node}}"
                      restartPolicy: Never
                      hostPID: true
                      hostNetwork: false
                      containers:
                        - {name: reboot, image: "reboot:1", command: [reboot, "--why={{check}}: \"{{reason}}\""], resources: {limits: {cpu: "0.5"}}}
          - object:
              template:
                apiVersion: v1
                kind: Pod
                metadata: {namespace: repair}
                spec: {containers: [{name: a, image: b}]}
`

// The controller creates and deletes objects of the kinds of its actions as their templates have them, and whoever has its token no
// others, whatever RBAC says.
func TestAdmissionPolicyOfObjects(t *testing.T) {
	t.Parallel()
	f := startFortress(t, cluster.Options{WithoutScheduler: true}, acting, "repair")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	f.must(f.admin.Create(t.Context(), n))
	name := workerpod.RemediationName(target(n), 5, 1)
	marks := metav1.ObjectMeta{Namespace: "repair", Name: name, Labels: map[string]string{"why": "Timeout", "app.kubernetes.io/managed-by": "kube-node-ready"},
		Annotations: map[string]string{remediation.AnnotationNodeUID: string(n.UID)}}
	job := &batchv1.Job{ObjectMeta: marks, Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeName: "n", RestartPolicy: corev1.RestartPolicyNever, HostPID: true,
		Containers: []corev1.Container{{Name: "reboot", Image: "reboot:1", Command: []string{"reboot", `--why=dns: "Timeout"`}}}}}}}
	k := f.as(ourController)
	with := func(change func(*batchv1.Job)) *batchv1.Job {
		changed := job.DeepCopy()
		change(changed)
		return changed
	}
	shell := func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Image = "shell" }
	for end := time.Now().Add(patience); time.Now().Before(end) && !deniedBy("objects", k.Create(t.Context(), with(shell))); {
		time.Sleep(100 * time.Millisecond)
	}
	f.allowed("the object", k.Create(t.Context(), job.DeepCopy()))
	f.allowed("the dry run of its creation", k.Create(t.Context(), with(func(j *batchv1.Job) { j.Name = "node-ready-dry-run" })))
	for what, change := range map[string]func(*batchv1.Job){
		"another image":   shell,
		"another command": func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Command[0] = "sh" },
		"other arguments": func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0].Command[1] = "--all" },
		"a second container": func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers = append(j.Spec.Template.Spec.Containers, corev1.Container{Name: "b", Image: "b"})
		},
		"the host's network": func(j *batchv1.Job) { j.Spec.Template.Spec.HostNetwork = true },
		"another name":       func(j *batchv1.Job) { j.Name = "shell" },
		"no node":            func(j *batchv1.Job) { j.Annotations = nil },
		"another namespace":  func(j *batchv1.Job) { j.Namespace = metav1.NamespaceDefault },
		"other retries":      func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](6) },
	} {
		f.denied("objects", what, k.Create(t.Context(), with(change)))
	}
	f.denied("objects", "an object, by a worker", f.as(ourWorker).Create(t.Context(), with(shell)))
	f.allowed("somebody's job", f.as(somebody).Create(t.Context(), with(shell)))

	f.must(f.really(ourController).Create(t.Context(), job.DeepCopy()))
	f.denied("objects", "a change", k.Patch(t.Context(), job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))))
	f.allowed("its deletion", k.Delete(t.Context(), job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	foreign := with(func(j *batchv1.Job) { j.ObjectMeta = metav1.ObjectMeta{Namespace: "repair", Name: "backup"} })
	f.must(f.admin.Create(t.Context(), foreign))
	f.denied("objects", "deletion of a foreign job", k.Delete(t.Context(), foreign, client.PropagationPolicy(metav1.DeletePropagationBackground)))

	// A pod of an action is none that verifies a node.
	pod := &corev1.Pod{ObjectMeta: marks, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	f.allowed("a pod", k.Create(t.Context(), pod.DeepCopy()))
	other := pod.DeepCopy()
	other.Spec.Containers[0].Image = "shell"
	f.denied("objects", "another pod", k.Create(t.Context(), other))
	named := pod.DeepCopy()
	named.Name = "shell"
	if err := k.Create(t.Context(), named); !deniedBy("objects", err) && !deniedBy("pods", err) {
		t.Errorf("a pod of another name: %v", err)
	}
	f.allowed("a worker", k.Create(t.Context(), f.builder(acting).Verify(target(n), f.configured(acting).For(nil), 1, "")))

	condition := func(kind string) error {
		return k.Status().Patch(t.Context(), n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType,
			[]byte(strings.ReplaceAll(`{"status":{"conditions":[{"type":"KIND","status":"True"}]}}`, "KIND", kind))))
	}
	f.allowed("the condition of an action", condition("example.com/Repair"))
	f.denied("nodes", "another condition", condition("node-ready/RemediationRequired"))
}
