import { simulationPart } from './part.ts';

simulationPart(3);
