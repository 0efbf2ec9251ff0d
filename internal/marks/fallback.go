package marks

import corev1 "k8s.io/api/core/v1"

// Fallback is what goes on in place of a NoExecute taint where that would evict pods: the same taint with effect NoSchedule.
func (t Taint) Fallback() Taint {
	t.Effect = corev1.TaintEffectNoSchedule
	return t
}

// WithFallbacks returns the taints, each of effect NoExecute followed by what may stand in for it.
func WithFallbacks(taints []Taint) []Taint {
	var out []Taint
	for _, t := range taints {
		out = append(out, t)
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t.Fallback())
		}
	}
	return out
}
