package kubernetesapi

// The ways to the API server.
const (
	// ViaAddress is KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
	ViaAddress = "address"
	// ViaDNS is the Service's DNS name, kubernetes.default.svc.
	ViaDNS = "dns"
)

// Settings calls the API server as the worker's service account.
type Settings struct {
	// Path that must answer 200. Default /readyz.
	Path string `json:"path,omitempty" enum:"/readyz /livez /version"`
	// Via is how the API server is reached, each way on its own: address
	// (KUBERNETES_SERVICE_HOST) and dns (kubernetes.default.svc). Default both.
	Via []string `json:"via,omitempty" enum:"address dns"`
	// ExpectUser is the user name that a SelfSubjectReview must return. Default: the
	// service account that the token names.
	ExpectUser string `json:"expectUser,omitempty"`
}

// NeedsAPI reports whether the Kubernetes API is called: always.
func (s *Settings) NeedsAPI() bool { return true }
